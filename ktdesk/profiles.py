"""`ktdesk profile`: the profiles that ship and the user's own, in one list; and what a preset says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
import yaml

from ktdesk.errors import UsageError
from ktdesk.options import SamplingOptions
from ktdesk.settings import Settings
from ktdesk.terminal import on_one_line
from ktdesk_engine.placement import Rates
from ktdesk_profiles.machines import machine_texts
from ktdesk_profiles.models import load_model_profiles
from ktdesk_profiles.placements import Placement, load_placements
from ktdesk_profiles.presets import Preset, load_presets, said

KINDS = ("machine", "model", "placement", "preset", "use")
MOST_USED = 8
"""Experts of a layer that are shown."""
NAME_WIDTH = 26


@dataclass(frozen=True)
class Profile:
    kind: str
    name: str
    origin: str
    """The file that it is from."""
    title: str
    facts: dict[str, Any]


def all_profiles(settings: Settings) -> Iterator[Profile]:
    """ProfileError where a file of the user's is wrong."""
    folder = settings.data_folder / "profiles"
    for name, (origin, text) in machine_texts(folder / "machines").items():
        facts = cast("object", yaml.safe_load(text))
        yield Profile("machine", name, origin, "", facts if isinstance(facts, dict) else {})
    for name, (origin, model) in load_model_profiles(folder / "models").items():
        yield Profile("model", name, origin, model.title, asdict(model))
    for name, (origin, placement) in load_placements(folder / "placements").items():
        rules = [{"match": rule.match, "place": rule.place} for rule in placement.rules]
        yield Profile("placement", name, origin, placement.title, {**asdict(placement), "rules": rules})
    for name, (origin, preset) in load_presets(folder / "presets").items():
        yield Profile("preset", name, origin, preset.title, asdict(preset))
    yield from _uses(settings)


def _uses(settings: Settings) -> Iterator[Profile]:
    """What servers counted, named as the models' files."""
    from ktdesk.expert_use import kept_uses

    for record in kept_uses(settings.data_folder):
        num_layers, num_experts = record.rates.shape
        order = np.argsort(-record.rates, axis=1, kind="stable")[:, :MOST_USED]
        facts = {
            "model": record.model,
            "saved": record.saved,
            "layers": num_layers,
            "experts": num_experts,
            "most_used": {f"layer {layer}": ", ".join(map(str, ids)) for layer, ids in enumerate(order.tolist())},
            "share_of_most_used_fifth": round(_share_of_fifth(record.rates), 3),
        }
        name = record.model.removesuffix(".gguf").lower()
        yield Profile("use", name, str(record.path), f"how its {num_layers} x {num_experts} experts were used", facts)


def _share_of_fifth(rates: Rates) -> float:
    """Of all uses, those of the most used fifth of the experts."""
    flat = np.sort(rates, axis=None)[::-1]
    return float(flat[: max(1, flat.size // 5)].sum() / max(flat.sum(), 1e-9))


def listed(settings: Settings, kind: str | None) -> list[Profile]:
    if kind is not None and kind not in KINDS:
        raise UsageError(f"KIND must be one of {', '.join(KINDS)}: {kind!r}")
    return [profile for profile in all_profiles(settings) if kind in (None, profile.kind)]


def named(settings: Settings, name: str) -> Profile:
    """NAME, or KIND/NAME where several kinds have it."""
    profiles = list(all_profiles(settings))
    found = [profile for profile in profiles if name.lower() in (profile.name, f"{profile.kind}/{profile.name}")]
    if len(found) > 1:
        choices = " or ".join(f"{profile.kind}/{profile.name}" for profile in found)
        raise UsageError(f"{name!r} may be {choices}: name one of them")
    if not found:
        import difflib

        close = difflib.get_close_matches(name.lower(), [profile.name for profile in profiles])
        advice = f"did you mean {' or '.join(close)}?" if close else "`ktdesk profile ls` lists them"
        raise UsageError(f"no profile is called {name!r}: {advice}")
    return found[0]


def preset_named(settings: Settings, name: str) -> Preset:
    presets = load_presets(settings.data_folder / "profiles" / "presets")
    if name not in presets:
        raise UsageError(f"--preset {name}: no such preset; there are {', '.join(presets)}")
    return presets[name][1]


def placement_named(settings: Settings, name: str) -> Placement:
    placements = load_placements(settings.data_folder / "profiles" / "placements")
    if name not in placements:
        raise UsageError(f"--placement {name}: no such rules; there are {', '.join(placements)}; or name a .yaml file")
    return placements[name][1]


def with_preset(sampling: SamplingOptions, name: str, settings: Settings) -> SamplingOptions:
    """An option that was given counts more."""
    wanted = said(preset_named(settings, name).sampling)
    return replace(sampling, **{key: value for key, value in wanted.items() if getattr(sampling, key) is None})


def as_lines(profiles: list[Profile]) -> Iterator[str]:
    for profile in profiles:
        title = on_one_line(profile.title)
        own = f"  ({on_one_line(profile.origin)})" if "/" in profile.origin and profile.kind != "machine" else ""
        yield f"{profile.kind:<11}{profile.name:<{NAME_WIDTH}}{title}{own}".rstrip()


def as_yaml(profile: Profile) -> str:
    """With what it does not say left out, and where it is from."""
    facts = _plain(profile.facts)
    text = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100)
    return f"# {profile.kind}, from {on_one_line(profile.origin)}\n{text}".rstrip()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in (None, {}, ())}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
