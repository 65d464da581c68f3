"""The processor: instruction sets that go unused, clocks that stay low, time that others grant."""

from __future__ import annotations

from collections.abc import Iterator

from ktdesk_wizard.doctor.diagnosis import Case, Evidence, Finding, evidence
from ktdesk_wizard.probe.cpu import AMX, AVX2

SLOW_GOVERNORS = ("powersave", "conservative", "ondemand", "userspace")


def unused_tiles(case: Case) -> Iterator[Finding]:
    """Of a processor that has tiles at all: the first light that is off."""
    amx, flags = case.facts.cpu.amx, case.facts.cpu.flags
    if not set(flags.value or ()) >= AMX:
        return
    if amx.flag.value is False:
        yield Finding(
            "amx-masked",
            "slow",
            "the processor has AMX, but flags that its kernels need are missing, so that tiles stay unused",
            (Evidence("no", amx.flag.source),),
            "in a virtual machine, have it pass the processor through whole (QEMU: -cpu host)",
        )
    elif amx.kernel.value is False:
        yield Finding(
            "amx-kernel",
            "slow",
            "the processor has AMX, but this Linux does not save tiles",
            (Evidence(case.facts.surroundings.kernel.value or "unknown", amx.kernel.source),),
            "run Linux 5.16 or later",
        )
    elif amx.permission.value is False:
        yield Finding(
            "amx-permission",
            "slow",
            "the processor has AMX, but this process may not use it",
            (Evidence("no", amx.permission.source),),
            "look whether a container or a security profile forbids arch_prctl",
        )


def narrow_vectors(case: Case) -> Iterator[Finding]:
    flags = case.facts.cpu.flags
    if flags.value is not None and not set(flags.value) >= AVX2:
        yield Finding(
            "no-avx2",
            "slow",
            "the processor shows no AVX2: only plain loops are left, which are many times slower",
            (evidence(flags, lambda value: " ".join(value) or "no flag that the kernels use"),),
            "on x86 in a virtual machine, have it pass the processor through; elsewhere it stays slow",
        )


def slow_governor(case: Case) -> Iterator[Finding]:
    governor = case.facts.cpu.governor
    if governor.value in SLOW_GOVERNORS:
        yield Finding(
            "governor",
            "slow",
            "the clock is governed to save power, and rises late",
            (evidence(governor),),
            "as root: cpupower frequency-set -g performance",
        )


def time_quota(case: Case) -> Iterator[Finding]:
    cpu = case.facts.cpu
    quota, cores = cpu.quota_cores.value, cpu.num_cores.value
    if quota is not None and cores is not None and quota < cores:
        yield Finding(
            "cpu-quota",
            "slow",
            "a cgroup grants less time than there are cores, and threads are fewer for it",
            (evidence(cpu.quota_cores, lambda value: f"{value:g} cores' worth"), evidence(cpu.num_cores)),
            "raise cpu.max of the cgroup (of a container: --cpus)",
        )


def two_kinds_of_cores(case: Case) -> Iterator[Finding]:
    kinds = case.facts.cpu.core_kinds
    if kinds.value and kinds.value != "all alike":
        yield Finding(
            "hybrid-cores",
            "note",
            "cores are of two kinds; the fast ones wait for the slow ones",
            (evidence(kinds),),
            "try --threads with the number of performance cores, and compare with `ktdesk bench`",
        )


def forced_isa(case: Case) -> Iterator[Finding]:
    for name in ("KTDESK_ISA", "KTDESK_PIN"):
        if case.environment.get(name):
            yield Finding(
                "environment",
                "note",
                f"{name} overrules what ktdesk would choose",
                (Evidence(case.environment[name], f"the environment variable {name}"),),
                f"unset {name}, unless it is meant so",
            )
