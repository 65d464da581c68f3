"""Groups of options that several commands take. `command` makes options out of their fields."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from ktdesk.errors import UsageError
from ktdesk.text_input import argument_text

if TYPE_CHECKING:  # help must answer without the engine
    from ktdesk.settings import Settings
    from ktdesk_engine.config import AcceleratorKind, CacheType, Compute, EngineConfig, EngineName, SamplingConfig
    from ktdesk_engine.placement_rules import Strategy


KeepAlive = Annotated[
    float,
    typer.Option(
        envvar="KTDESK_KEEP_ALIVE",
        metavar="SECONDS",
        help="A server that is started for this ends when nobody asked it for so long; 0: load the model here.",
    ),
]
KEEP_ALIVE_SECONDS = 600.0


PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Sampling that other options do not say (`ktdesk profile ls preset`).",
        show_default="none",
    ),
]
RENAMED = {
    "num_threads": "--threads",
    "accelerator_bytes": "--accelerator-memory",
    "placement": "--placement-strategy",
    "placement_rules": "--placement",
    "experts_used": "--experts",
    "num_logprobs": "--logprobs",
    "num_sequences": "--sequences",
    "devices": "--device",
    "max_gpu_bytes": "--max-gpu-memory",
    "max_running": "--parallel",
    "max_waiting": "--max-waiting",
    "max_stall_ms": "--max-stall-ms",
    "max_wait_seconds": "--max-wait",
}
"""Settings of engine and planner whose options are not simply their names."""


@dataclass(frozen=True)
class AnswerOptions:
    max_tokens: Annotated[
        int | None, typer.Option(help="End the answer after this many tokens.", show_default="until it ends")
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End the answer before this text. May be repeated.", parser=argument_text),
    ] = None
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first.", parser=argument_text)
    ] = None
    think: Annotated[
        bool | None,
        typer.Option("--think/--no-think", help="Tell the chat template to let the model think, or not to."),
    ] = None

    @property
    def variables(self) -> dict[str, Any]:
        """For the chat template."""
        return {} if self.think is None else {"enable_thinking": self.think}

    @property
    def first_messages(self) -> list[dict[str, str]]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]


@dataclass(frozen=True)
class SamplingOptions:
    """Without an option, what the model's file recommends counts, and without that, our default."""

    temperature: Annotated[
        float | None, typer.Option(help="0 always takes the likeliest token.", show_default="the file's, or 0.7")
    ] = None
    top_k: Annotated[
        int | None, typer.Option(help="Of the likeliest K tokens; 0: of all.", show_default="the file's, or 40")
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="Of the likeliest, up to this sum.", show_default="the file's, or 0.95"),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(help="At least this share of the likeliest.", show_default="the file's, or 0.05"),
    ] = None
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: less of what was there.", show_default="the file's, or 1")
    ] = None
    presence_penalty: Annotated[
        float | None, typer.Option(help="Taken from the logit of tokens that were there.", show_default="0")
    ] = None
    frequency_penalty: Annotated[
        float | None, typer.Option(help="The same, for each time they were there.", show_default="0")
    ] = None
    seed: Annotated[int | None, typer.Option(help="The same seed draws the same answer.", show_default="a new one")] = (
        None
    )

    def over(self, recommended: SamplingConfig) -> SamplingConfig:
        return replace(recommended, **{name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class EngineOptions:
    context: Annotated[
        int | None,
        typer.Option(help="Tokens of prompt and answer together.", show_default="as trained, if it fits"),
    ] = None
    engine: Annotated[
        str, typer.Option(help="ktdesk, or llamacpp where that extra is installed. auto: ktdesk's where it can.")
    ] = "auto"
    threads: Annotated[int | None, typer.Option(help="Threads to compute on.", show_default="a core each")] = None
    compute: Annotated[
        str,
        typer.Option(
            help="mixed: few tokens on vectors, many on tiles (AMX). int8: all on vectors. bf16: on tiles, coarser. "
            "float32: exact, slow. auto: mixed, or int8 without AMX."
        ),
    ] = "auto"
    isa: Annotated[
        str | None, typer.Option(help="scalar, avx2, avx512 or amx.", show_default="the widest of this machine")
    ] = None
    cache_type: Annotated[
        str | None,
        typer.Option(
            help="How past tokens are kept: float32, f16, bf16 or q8_0 (half of 16 bits).",
            show_default="f16; float32 with --compute float32",
        ),
    ] = None
    defer: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="So many of a token's experts come one layer late: another network, faster beside an accelerator.",
        ),
    ] = "0"
    experts: Annotated[
        int | None,
        typer.Option(help="Fewer experts a token: another network, faster.", show_default="as trained"),
    ] = None
    accelerator: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="cuda: all but routed experts on a GPU, and as many of these as fit (the extra gpu; has not run on "
            "one yet); `ktdesk plan --device gpu` plans it. host-thread: the same on a thread here, for tests.",
            show_default="none",
        ),
    ] = None
    accelerator_memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="Of its memory that may be used.", show_default="what is free")
    ] = None
    accelerator_experts: Annotated[
        int | None,
        typer.Option(metavar="N", help="Routed experts on it, of all layers.", show_default="as many as fit"),
    ] = None
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Where experts may lie: rules by their name (`ktdesk profile ls placement`), or a YAML file of them.",
            show_default="none",
        ),
    ] = None
    """A name, a file, or the rules themselves as JSON."""
    placement_strategy: Annotated[
        str, typer.Option(help="Which lie there at first: frequency, uniform, front-loading or random.")
    ] = "frequency"
    share_memory: Annotated[
        bool,
        typer.Option(
            "--share-memory/--no-share-memory",
            help="Experts have what the cache does not need of the accelerator's memory, and give it back.",
        ),
    ] = True
    move_ms: Annotated[
        float, typer.Option(metavar="MS", help="How long experts may move between two tokens; 0: never.")
    ] = 2.0
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="The same answer whoever else is answered, and whatever is cached; slower prompts."
        ),
    ] = False
    program: Annotated[
        bool,
        typer.Option("--program/--no-program", help="Replay a recorded decode step.", hidden=True),
    ] = True

    def with_settings(self, settings: Settings) -> EngineOptions:
        """With rules in the place of their name: a server that is asked for the same must have the same rules."""
        if self.placement is None or self.placement.startswith("["):
            return self
        from ktdesk.placement_rules import rules_of

        rules = [asdict(rule) for rule in rules_of(self.placement, settings)]
        return replace(self, placement=json.dumps(rules))

    @property
    def config(self) -> EngineConfig:
        from ktdesk_engine.config import EngineConfig
        from ktdesk_engine.placement_rules import Rule

        _check_threads(self.threads)
        compute = cast("Compute", self.compute)  # EngineConfig checks it
        defer = int(self.defer) if self.defer.isdecimal() else cast("Literal['auto']", self.defer)
        accelerator = cast("AcceleratorKind | None", self.accelerator)
        cache_type = cast("CacheType | None", self.cache_type)
        return EngineConfig(
            engine=cast("EngineName", self.engine),
            compute=compute,
            cache_type=cache_type,
            context=self.context,
            num_threads=self.threads,
            isa=self.isa,
            defer=defer,
            experts_used=self.experts,
            accelerator=accelerator,
            accelerator_bytes=_bytes(self.accelerator_memory),
            accelerator_experts=self.accelerator_experts,
            placement=cast("Strategy", self.placement_strategy),
            placement_rules=tuple(Rule(**rule) for rule in json.loads(self.placement or "[]")),
            share_memory=self.share_memory,
            move_ms=self.move_ms,
            deterministic=self.deterministic,
            program=self.program,
        )


def _bytes(gib: float | None) -> int | None:
    """UsageError where no memory is so large."""
    if gib is None:
        return None
    if not 0 <= gib < 1 << 20:
        raise UsageError(f"--accelerator-memory must be a number of GiB of at least 0: {gib:g}")
    return round(gib * 2**30)


def _check_threads(count: int | None) -> None:
    """Threads that share a processor wait for each other at every step."""
    num_processors = len(os.sched_getaffinity(0))
    if count is not None and count > num_processors:
        raise UsageError(f"--threads {count}: there are {num_processors} processors for this process")


def as_typed(message: str) -> str:
    """What engine or planner say of a setting, with the option in its place where the setting's name comes first."""
    names = [field.name for group in (AnswerOptions, SamplingOptions, EngineOptions) for field in fields(group)]
    options = {name: f"--{name.replace('_', '-')}" for name in names} | RENAMED
    setting, space, rest = message.partition(" ")
    return f"{options.get(setting, setting)}{space}{rest}"


def changed_options(options: EngineOptions) -> dict[str, Any]:
    """Those that are not as they are without being given, by name."""
    return {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if getattr(options, field.name) != field.default
    }


def options_with(changed: Mapping[str, Any]) -> EngineOptions:
    """From what `changed_options` gave, perhaps in an older version: what is no option any more is left out."""
    names = {field.name for field in fields(EngineOptions)}
    return EngineOptions(**{name: value for name, value in changed.items() if name in names})
