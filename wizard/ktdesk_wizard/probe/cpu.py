"""The processor: cores that this process may use, what they can do, and whether they may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ktdesk_engine.benchmark.conditions import l3_bytes
from ktdesk_engine.machine import cpu_quota, default_num_threads, usable_cores
from ktdesk_engine.system_files import cpu_list, text_of
from ktdesk_wizard.probe import cpuinfo
from ktdesk_wizard.probe.cpuinfo import CpuInfo
from ktdesk_wizard.probe.fact import Fact, derived, reported, reported_or_unknown, unknown
from ktdesk_wizard.probe.machine_facts import AmxFacts, CpuFacts

CPU_FOLDER = "sys/devices/system/cpu"
AVX2 = frozenset({"avx2", "fma", "f16c"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
AMX = frozenset({"amx_tile", "amx_int8", "amx_bf16"})
BESIDE_TILES = frozenset({"avx512_vnni", "avx512_bf16", "avx512_fp16"})
"""What unpacks to tiles."""
WORTH_TELLING = (*sorted(AVX512), *sorted(BESIDE_TILES), "avx_vnni", *sorted(AMX), "amx_fp16")
FIRST_KERNEL_WITH_TILES = (5, 16)
NOT_MEASURED = "not measured yet"

AmxRefusal = Callable[[], str | None]
"""Why this process may not use tiles, None where it may. It asks the processor and the operating system, so it is of
the machine that runs, not of a tree."""


def read_cpu(root: Path, info: CpuInfo, amx_refusal: AmxRefusal) -> CpuFacts:
    cpus = allowed_cpus(root)
    cores = usable_cores(root, cpus)
    quota = cpu_quota(root)
    amx = read_amx(root, info, amx_refusal)
    first = cores[0].cpu if cores else 0
    return CpuFacts(
        name=reported_or_unknown(info.name, cpuinfo.SOURCE, f"no model name in {cpuinfo.SOURCE}"),
        num_packages=_num_packages(root),
        num_cores=derived(len(cores), "/proc/self/status Cpus_allowed_list, and thread_siblings_list of each"),
        num_hardware_threads=reported(len(cpus), "/proc/self/status Cpus_allowed_list"),
        quota_cores=reported_or_unknown(quota, "cpu.max or cpu.cfs_quota_us of the cgroups", "no cgroup sets a limit"),
        num_threads=derived(default_num_threads(root, cpus), "a core each, within the quota"),
        core_kinds=_core_kinds(root, cpus),
        max_hz=_max_hz(root, first, info),
        governor=_governor(root, first),
        l3_bytes=_l3(root),
        flags=_flags(info),
        isa=_isa(info, amx),
        peak_ops_s=unknown(NOT_MEASURED),
        kernel_shares=unknown(NOT_MEASURED),
        busy_cores=unknown(NOT_MEASURED),
        turns_share=unknown(NOT_MEASURED),
        amx=amx,
    )


def allowed_cpus(root: Path) -> list[int]:
    """By affinity, which a cpuset has already narrowed; all that are online where a tree does not say."""
    status = text_of(root / "proc/self/status").splitlines()
    lists = [line.partition(":")[2].strip() for line in status if line.startswith("Cpus_allowed_list:")]
    online = sorted(cpu_list(text_of(root / CPU_FOLDER / "online")))
    allowed = sorted(cpu_list(lists[0])) if lists else online
    return [cpu for cpu in allowed if cpu in online] if online else allowed


def read_amx(root: Path, info: CpuInfo, amx_refusal: AmxRefusal) -> AmxFacts:
    missing = sorted((AMX | BESIDE_TILES) - info.flags)
    flag: Fact[bool] = reported(not missing, f"{cpuinfo.SOURCE}: {', '.join(missing) or 'all flags'}"[:200])
    if missing and info.flags >= AMX:
        flag = reported(False, f"{cpuinfo.SOURCE}: has AMX, but not {', '.join(missing)}: masked, or an early model")
    elif missing:
        flag = reported(False, f"{cpuinfo.SOURCE}: no {', '.join(missing)}")
    return AmxFacts(flag, _kernel_saves_tiles(root), _permission(bool(flag.value), amx_refusal), unknown(NOT_MEASURED))


def _kernel_saves_tiles(root: Path) -> Fact[bool]:
    source = "/proc/sys/kernel/osrelease"
    numbers = text_of(root / source[1:]).split("-")[0].split(".")[:2]
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
        return unknown(f"{source} holds no version")
    return derived(tuple(map(int, numbers)) >= FIRST_KERNEL_WITH_TILES, f"{source}; Linux 5.16 is the first")


def _permission(has_flag: bool, amx_refusal: AmxRefusal) -> Fact[bool]:
    if not has_flag:
        return unknown("not asked for: a flag is missing")
    refusal = amx_refusal()
    return reported(refusal is None, refusal or "arch_prctl ARCH_REQ_XCOMP_PERM")


def _num_packages(root: Path) -> Fact[int]:
    ids = {text_of(path) for path in (root / CPU_FOLDER).glob("cpu[0-9]*/topology/physical_package_id")} - {""}
    source = f"/{CPU_FOLDER}/cpu*/topology/physical_package_id"
    return reported_or_unknown(len(ids) or None, source, f"{source} cannot be read")


def _core_kinds(root: Path, cpus: Sequence[int]) -> Fact[str]:
    counts = {
        name: len(usable_cores(root, [cpu for cpu in cpu_list(text_of(root / path)) if cpu in cpus]))
        for name, path in (("performance", "sys/devices/cpu_core/cpus"), ("efficiency", "sys/devices/cpu_atom/cpus"))
    }
    if not any(counts.values()):
        return derived("all alike", "no /sys/devices/cpu_core")
    text = ", ".join(f"{count} {name}" for name, count in counts.items())
    return reported(text, "/sys/devices/cpu_core/cpus and cpu_atom/cpus")


def _max_hz(root: Path, cpu: int, info: CpuInfo) -> Fact[float]:
    path = f"{CPU_FOLDER}/cpu{cpu}/cpufreq/cpuinfo_max_freq"
    khz = text_of(root / path)
    if khz.isdigit():
        return reported(int(khz) * 1e3, f"/{path}")
    if info.mhz:
        return reported(info.mhz * 1e6, f"{cpuinfo.SOURCE} cpu MHz, of the moment")
    return unknown("neither cpufreq nor /proc/cpuinfo tells of it")


def _governor(root: Path, cpu: int) -> Fact[str]:
    path = f"{CPU_FOLDER}/cpu{cpu}/cpufreq/scaling_governor"
    return reported_or_unknown(text_of(root / path) or None, f"/{path}", "no cpufreq: the system does not govern it")


def _l3(root: Path) -> Fact[int]:
    source = f"/{CPU_FOLDER}/cpu*/cache"
    return reported_or_unknown(l3_bytes(root / CPU_FOLDER) or None, source, f"{source} tells of no third level")


def _flags(info: CpuInfo) -> Fact[tuple[str, ...]]:
    if not info.flags:
        return unknown(f"no flags in {cpuinfo.SOURCE}")
    return reported(tuple(flag for flag in WORTH_TELLING if flag in info.flags), cpuinfo.SOURCE)


def _isa(info: CpuInfo, amx: AmxFacts) -> Fact[str]:
    if amx.flag.value and amx.kernel.value and amx.permission.value:
        return derived("amx", "all lights of AMX that need no measurement")
    isa = "avx512" if info.flags >= AVX512 else "avx2" if info.flags >= AVX2 else "scalar"
    return derived(isa, f"flags of {cpuinfo.SOURCE}")
