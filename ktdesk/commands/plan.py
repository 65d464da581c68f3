"""`ktdesk plan`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ktdesk.command import settings_of
from ktdesk.exit_codes import ExitCode

if TYPE_CHECKING:  # help must answer without the engine
    from ktdesk.settings import Settings
    from ktdesk_wizard.plan.wishes import Devices, Wishes

GIB = 2**30


@dataclass(frozen=True)
class WishOptions:
    context: Annotated[
        int | None, typer.Option(help="Tokens of prompt and answer together.", show_default="as trained, if it fits")
    ] = None
    cache_type: Annotated[
        str | None, typer.Option(help="float32, f16, bf16 or q8_0.", show_default="f16; float32 in float32")
    ] = None
    sequences: Annotated[int, typer.Option(help="Whole contexts at the same time.")] = 1
    threads: Annotated[int | None, typer.Option(help="Threads to compute on.", show_default="a core each")] = None
    compute: Annotated[str, typer.Option(help="auto, int8, mixed, bf16 or float32.")] = "auto"
    max_memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="Of main memory, for all of ktdesk.", show_default="what is free"),
    ] = None
    max_gpu_memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="Of each card.", show_default="what is free")
    ] = None
    device: Annotated[
        str,
        typer.Option(help="auto, cpu or gpu; what it plans for gpu, `run` does with --accelerator cuda."),
    ] = "auto"
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Rules for experts on a card, by their name (`ktdesk profile ls placement`), or a YAML file.",
            show_default="none",
        ),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the other options do not say (`ktdesk profile ls preset`)."),
    ] = None

    def with_preset(self, settings: Settings) -> WishOptions:
        """An option that was given counts more."""
        if self.preset is None:
            return self
        from ktdesk.profiles import preset_named
        from ktdesk_profiles.presets import said

        default = WishOptions()
        wanted = said(preset_named(settings, self.preset).plan)
        return replace(
            self, **{name: value for name, value in wanted.items() if getattr(self, name) == getattr(default, name)}
        )

    def wishes_with(self, settings: Settings) -> Wishes:
        """What the preset says besides, and the rules that are meant."""
        wishes = self.with_preset(settings).wishes
        if self.placement is None:
            return wishes
        from ktdesk.placement_rules import rules_of

        rules = [asdict(rule) for rule in rules_of(self.placement, settings)]
        return replace(wishes, placement=self.placement, placement_rules=json.dumps(rules))

    @property
    def wishes(self) -> Wishes:
        from ktdesk.errors import UsageError
        from ktdesk_engine.config import CACHE_TYPES, COMPUTES
        from ktdesk_wizard.plan.wishes import Wishes

        if self.compute not in COMPUTES:
            raise UsageError(f"--compute must be one of {', '.join(COMPUTES)}: {self.compute!r}")
        if self.cache_type is not None and self.cache_type not in CACHE_TYPES:
            raise UsageError(f"--cache-type must be one of {', '.join(CACHE_TYPES)}: {self.cache_type!r}")
        return Wishes(
            context=self.context,
            cache_type=self.cache_type,
            num_sequences=self.sequences,
            num_threads=self.threads,
            compute=self.compute,
            max_memory_bytes=_bytes("--max-memory", self.max_memory),
            max_gpu_bytes=_bytes("--max-gpu-memory", self.max_gpu_memory),
            devices=cast("Devices", self.device),
        )


def _bytes(option: str, gib: float | None) -> int | None:
    from ktdesk.errors import UsageError

    if gib is None:
        return None
    if not 1 / GIB <= gib < inf:
        raise UsageError(f"{option} must be above 0: {gib:g}")
    return int(gib * GIB)


def plan(
    ctx: typer.Context,
    wishes: WishOptions,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A GGUF file, 'demo', a name of the catalogue (--list) or the store, OWNER/REPOSITORY, or a URL.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Facts to plan with: a file of `probe --json`, or of some, or such as desktop-64g."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each formula, and what was decided against.")
    ] = False,
    why_not: Annotated[
        str | None, typer.Option(metavar="QUANT", help="Compare with another quantization, such as Q8_0.")
    ] = None,
    quant: Annotated[
        str | None,
        typer.Option(
            metavar="QUANT",
            help="Of a model of the catalogue or a hub.",
            show_default="the best that fits",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="hub, modelscope or a mirror's address; may be repeated.", show_default="hub"),
    ] = None,
    list_models: Annotated[bool, typer.Option("--list", help="List the catalogue.")] = False,
    force: Annotated[bool, typer.Option("--force", help="End with 0 even if it does not fit.")] = False,
) -> int:
    """Compute what a model needs on this machine, whether it fits, and how fast it should be. Nothing is loaded.

    Of a repository only headers are read, and each quantization that it offers is judged. Ends with 6 if it does
    not fit, unless --force is given.
    """
    from ktdesk.errors import UsageError
    from ktdesk.json_output import json_text
    from ktdesk.model_paths import check_quantization
    from ktdesk.planning import Question, catalogue_facts, catalogue_text, planned

    settings = settings_of(ctx)
    if list_models:
        print(json_text(catalogue_facts(settings)) if as_json else catalogue_text(settings))
        return ExitCode.OK
    if model is None:
        raise UsageError("MODEL is missing: a file, or a name that `ktdesk plan --list` shows")
    check_quantization(model, quant)
    question = Question(wishes.wishes_with(settings), what_if, why_not, quant, tuple(source or ()))
    result = planned(model, question, settings)
    print(result.as_json() if as_json else result.as_text(explain=explain))
    does_not_fit = result.plan.verdict.kind == "does not fit"
    return ExitCode.RESOURCES if does_not_fit and not force else ExitCode.OK
