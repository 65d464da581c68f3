"""`ktdesk profile`: the profiles that ship and the user's own, in one list; and what a preset says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml

from ktdesk.errors import UsageError
from ktdesk.model_paths import DEMO
from ktdesk.options import SamplingOptions
from ktdesk.settings import DEMO_VARIABLE, Settings
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
    """What servers counted, named as the models; what was counted last comes last."""
    from ktdesk.expert_use import kept_uses
    from ktdesk_wizard.store.models import stored_models
    from ktdesk_wizard.store.names import name_of

    models = stored_models(settings.models_folder)
    for record in sorted(kept_uses(settings.data_folder), key=lambda record: record.saved):
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
        name = name_of(record.file or Path(record.model), models)
        yield Profile("use", name, str(record.path), f"how its {num_layers} x {num_experts} experts were used", facts)


def _share_of_fifth(rates: Rates) -> float:
    """Of all uses, those of the most used fifth of the experts."""
    flat = np.sort(rates, axis=None)[::-1]
    return float(flat[: max(1, flat.size // 5)].sum() / max(flat.sum(), 1e-9))


def listed(settings: Settings, kind: str | None) -> list[Profile]:
    if kind is not None and kind not in KINDS:
        raise UsageError(f"KIND must be one of {', '.join(KINDS)}: {kind!r}")
    return [profile for profile in all_profiles(settings) if kind in (None, profile.kind)]


def named(settings: Settings, name: str) -> Profile | None:
    """NAME, KIND/NAME where several kinds have it, or what a model is called: of that, how its experts were used.
    None where the model is known, and nothing was counted of it."""
    profiles = list(all_profiles(settings))
    low = name.lower()
    found = [each for each in profiles if low in (each.name.lower(), f"{each.kind}/{each.name}".lower())]
    found = _last_of_each(found) or _uses_of_model(settings, name, profiles)
    if len(found) > 1:
        choices = " or ".join(f"{profile.kind}/{profile.name}" for profile in found)
        raise UsageError(f"{name!r} may be {choices}: name one of them")
    from ktdesk.planning import is_here

    if found or name == DEMO or is_here(name, settings):
        return found[0] if found else None
    import difflib

    close = difflib.get_close_matches(low, [profile.name for profile in profiles])
    advice = f"did you mean {' or '.join(close)}?" if close else "`ktdesk profile ls` lists them"
    raise UsageError(f"no profile is called {name!r}: {advice}")


def _last_of_each(profiles: list[Profile]) -> list[Profile]:
    """A model's file that was changed is counted anew: what was counted of it last is meant."""
    return list({(profile.kind, profile.name): profile for profile in profiles}.values())


def _uses_of_model(settings: Settings, name: str, profiles: list[Profile]) -> list[Profile]:
    """Of a file, or the models of the store that a name may mean."""
    from ktdesk_wizard.store.models import stored_models
    from ktdesk_wizard.store.names import find_models, name_of

    models = stored_models(settings.models_folder)
    file = os.environ.get(DEMO_VARIABLE, name) if name == DEMO else name
    found = [] if os.path.isfile(file) else find_models(name, models)
    meant = {each.name for each in found} or {name_of(Path(file).absolute(), models)}
    return _last_of_each([profile for profile in profiles if profile.kind == "use" and profile.name in meant])


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
        yield f"{profile.kind:<11}{profile.name:<{NAME_WIDTH - 1}} {title}{own}".rstrip()


def as_yaml(profile: Profile) -> str:
    """With what it does not say left out, and where it is from."""
    facts = _plain(profile.facts)
    text = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100)
    return f"# {profile.kind}, from {on_one_line(profile.origin)}\n{text}".rstrip()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in (None, {}, ())}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
