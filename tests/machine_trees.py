"""Captured machines: trees of /sys, /proc and /run, and what NVML says, written from the documented formats.

`write_machine(name, root)` writes one of MACHINES; nothing of the machine that runs the tests is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GIB = 2**30
AVX2 = "avx2 fma f16c"
AVX512 = f"{AVX2} avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16"
AMX = f"{AVX512} avx512_fp16 avx_vnni amx_bf16 amx_tile amx_int8"
NO_LIMIT_V1 = "9223372036854771712"


class NVMLError(Exception):
    """As pynvml has it."""


@dataclass
class FakeCard:
    name: str
    total: int
    free: int
    bus_id: str = "00000000:01:00.0"
    memory_mhz: int | None = None
    bus_bits: int | None = None
    capability: tuple[int, int] | None = None
    link: tuple[int, int, int, int] | None = None
    """Generation and width, now and at best."""
    busy: int | None = None
    pcie: tuple[int, int] | None = None
    """Kilobytes a second, out and in."""
    uuid: str | None = None
    slice_of: int | None = None
    """Of a part (MIG): the card's number. Such are found by their UUID alone."""


@dataclass
class FakeNvml:
    """In place of the module pynvml. What a card does not support raises, as there."""

    cards: list[FakeCard] = field(default_factory=list)
    failure: str | None = None
    is_open: bool = False
    NVMLError: type[Exception] = NVMLError
    NVML_CLOCK_MEM: int = 2
    nvmlMemory_v2: int = 33554472  # noqa: N815 (the library's name)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            value = self._answer(name.removeprefix("nvml"), arguments)
            if value is None:
                raise NVMLError(f"{name}: Not Supported")
            return value

        return answer

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "Init":
            if self.failure:
                raise NVMLError(self.failure)
            self.is_open = True
            return True
        assert self.is_open, f"{name} was asked of a library that is closed"
        if name == "Shutdown":
            self.is_open = False
            return True
        whole = [card for card in self.cards if card.slice_of is None]
        of_system = {"DeviceGetCount": len(whole), "SystemGetDriverVersion": "570.86.10"}
        if name in of_system:
            return of_system[name]
        if name == "DeviceGetHandleByIndex":
            return whole[arguments[0]]
        if name == "DeviceGetHandleByUUID":
            return next((card for card in self.cards if card.uuid == arguments[0]), None)
        if name == "DeviceGetDeviceHandleFromMigDeviceHandle":
            return whole[arguments[0].slice_of]
        if name == "DeviceGetIndex":
            return whole.index(arguments[0])
        return self._of_card(name.removeprefix("DeviceGet"), arguments[0], arguments[1:])

    def _of_card(self, name: str, card: FakeCard, arguments: tuple[Any, ...]) -> Any:
        link = card.link or (None, None, None, None)
        return {
            "Name": card.name,
            "UUID": card.uuid,
            "PciInfo": SimpleNamespace(busId=card.bus_id),
            "MemoryInfo": SimpleNamespace(total=card.total, free=card.free) if card.total else None,
            "MaxClockInfo": card.memory_mhz if arguments == (self.NVML_CLOCK_MEM,) else None,
            "MemoryBusWidth": card.bus_bits,
            "UtilizationRates": SimpleNamespace(gpu=card.busy, memory=0) if card.busy is not None else None,
            "PcieThroughput": card.pcie[arguments[0]] if card.pcie and arguments else None,
            "CudaComputeCapability": card.capability,
            "CurrPcieLinkGeneration": link[0],
            "CurrPcieLinkWidth": link[1],
            "MaxPcieLinkGeneration": link[2],
            "MaxPcieLinkWidth": link[3],
        }.get(name)


@dataclass
class Captured:
    """A machine as it was written below a root."""

    root: Path
    nvml: FakeNvml | None = None
    amx_refusal: str | None = None


class Tree:
    """Writes the files of one machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | int) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def cpus(
        self,
        name: str,
        flags: str,
        packages: Sequence[Sequence[int]],
        *,
        threads: int = 2,
        vendor: str = "AuthenticAMD",
    ) -> None:
        """packages: for each the cores of its nodes, of which the hardware threads come after all cores."""
        num_cores = sum(sum(nodes) for nodes in packages)
        num_cpus = num_cores * threads
        entry = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: {name}\n"
        entry += f"cpu MHz\t\t: 3000.000\nflags\t\t: fpu {flags}"
        self.write("proc/cpuinfo", f"{entry}\n\n{entry.replace(': 0', ': 1')}\n")
        self.write("sys/devices/system/cpu/online", f"0-{num_cpus - 1}")
        self.write("proc/self/status", f"Name:\tktdesk\nCpus_allowed_list:\t0-{num_cpus - 1}\nMems_allowed_list:\t0")
        first, node = 0, 0
        for package, nodes in enumerate(packages):
            for cores in nodes:
                self._node_cpus(node, package, range(first, first + cores), num_cores, threads)
                first, node = first + cores, node + 1

    def _node_cpus(self, node: int, package: int, cores: range, num_cores: int, threads: int) -> None:
        spans = [f"{cores.start + t * num_cores}-{cores.stop - 1 + t * num_cores}" for t in range(threads)]
        self.write(f"sys/devices/system/node/node{node}/cpulist", ",".join(spans))
        for core in cores:
            siblings = [core + t * num_cores for t in range(threads)]
            for cpu in siblings:
                topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
                self.write(f"{topology}/thread_siblings_list", ",".join(map(str, siblings)))
                self.write(f"{topology}/physical_package_id", package)

    def memory(self, total: int, available: int, nodes: Sequence[int] = (), distances: Sequence[str] = ("10",)) -> None:
        """nodes: bytes of each, all of it in the first if there are none."""
        lines = {"MemTotal": total, "MemFree": available // 2, "MemAvailable": available, "SwapTotal": 8 * GIB}
        lines |= {"SwapFree": 8 * GIB}
        text = "\n".join(f"{name}:{size // 1024:>12} kB" for name, size in lines.items())
        self.write("proc/meminfo", f"{text}\nHugePages_Total:       0\nHugepagesize:       2048 kB")
        for node, size in enumerate(nodes or [total]):
            folder = f"sys/devices/system/node/node{node}"
            self.write(
                f"{folder}/meminfo", f"Node {node} MemTotal: {size // 1024} kB\nNode {node} MemFree: {size // 2048} kB"
            )
            self.write(f"{folder}/distance", distances[node])
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
        self.write(
            "proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  8388608  8388608  bytes"
        )

    def system(self, release: str = "6.8.0-45-generic", mounts: str = "ext4") -> None:
        self.write("proc/sys/kernel/osrelease", release)
        self.write("proc/self/mountinfo", f"22 1 8:1 / / rw - {mounts} /dev/sda1 rw")
        self.write("proc/self/cgroup", "0::/user.slice/user-1000.slice")
        self.write("proc/sys/kernel/numa_balancing", "1")
        (self.root / "home/user/models").mkdir(parents=True)

    def udev(
        self, locators: Sequence[tuple[str, str]], size: int, mts: int, kind: str = "DDR5", empty: int = 0
    ) -> None:
        lines = ["I:1", "E:MEMORY_ARRAY_NUM_DEVICES=1"]
        for i, (bank, locator) in enumerate(locators):
            is_empty = i >= len(locators) - empty
            lines.append(f"E:MEMORY_DEVICE_{i}_LOCATOR={locator}")
            lines.append(f"E:MEMORY_DEVICE_{i}_BANK_LOCATOR={bank}")
            values = (
                {"PRESENT": 0}
                if is_empty
                else {"SIZE": size, "TYPE": kind, "SPEED_MTS": mts, "CONFIGURED_SPEED_MTS": mts}
            )
            lines += [f"E:MEMORY_DEVICE_{i}_{name}={value}" for name, value in values.items()]
        self.write("run/udev/data/+dmi:id", "\n".join(lines))

    def card(
        self, bus_id: str, node: int = -1, vendor: str = "0x10de", speed: str = "16.0 GT/s PCIe", width: int = 16
    ) -> None:
        folder = f"sys/bus/pci/devices/{bus_id}"
        self.write(f"{folder}/class", "0x030000")
        self.write(f"{folder}/vendor", vendor)
        self.write(f"{folder}/numa_node", node)
        self.write(f"{folder}/current_link_speed", "2.5 GT/s PCIe")
        self.write(f"{folder}/current_link_width", width)
        self.write(f"{folder}/max_link_speed", speed)
        self.write(f"{folder}/max_link_width", width)

    def frequency(self, khz: int, governor: str) -> None:
        self.write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", khz)
        self.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor)

    def l3(self, cpu_list: str, size: str) -> None:
        folder = "sys/devices/system/cpu/cpu0/cache/index3"
        self.write(f"{folder}/level", 3)
        self.write(f"{folder}/shared_cpu_list", cpu_list)
        self.write(f"{folder}/size", size)


RTX_4090 = FakeCard(
    "NVIDIA GeForce RTX 4090",
    24564 << 20,
    23900 << 20,
    memory_mhz=10501,
    bus_bits=384,
    capability=(8, 9),
    link=(1, 16, 4, 16),
)


def _desktop(tree: Tree) -> Captured:
    """One socket, two of four slots filled, a card whose link is asleep."""
    tree.system()
    tree.cpus("AMD Ryzen 9 7950X 16-Core Processor", AVX512, [[16]])
    tree.memory(64 * GIB, 58 * GIB)
    tree.frequency(5_881_000, "powersave")
    tree.l3("0-7,16-23", "32768K")
    slots = [(f"P0 CHANNEL {channel}", f"DIMM {slot}") for slot in (1, 0) for channel in "AB"]
    tree.udev(slots, 32 * GIB, 6000, empty=2)
    tree.card("0000:01:00.0")
    return Captured(tree.root, FakeNvml([RTX_4090]))


def _two_sockets(tree: Tree) -> Captured:
    tree.system()
    tree.cpus("Intel(R) Xeon(R) Platinum 8480+", AMX, [[56], [56]], vendor="GenuineIntel")
    tree.memory(1024 * GIB, 1000 * GIB, [512 * GIB] * 2, ["10 21", "21 10"])
    tree.frequency(3_800_000, "performance")
    slots = [(f"NODE {node}", f"CPU{node}_DIMM_{channel}1") for node in (0, 1) for channel in "ABCDEFGH"]
    tree.udev(slots, 64 * GIB, 4800)
    tree.card("0000:b1:00.0", node=1)
    card = FakeCard("NVIDIA L40S", 46068 << 20, 45500 << 20, "00000000:B1:00.0", 9001, 384, (8, 9), (4, 16, 4, 16))
    return Captured(tree.root, FakeNvml([card]))


def _snc(tree: Tree) -> Captured:
    """One package divided by three, and a memory expander without processors."""
    tree.system("6.11.0")
    tree.cpus("Intel(R) Xeon(R) 6980P", AMX, [[43, 43, 42]], vendor="GenuineIntel")
    distances = ["10 15 17 24", "15 10 15 24", "17 15 10 24", "24 24 24 10"]
    tree.memory(896 * GIB, 880 * GIB, [256 * GIB] * 3 + [128 * GIB], distances)
    tree.write("sys/devices/system/node/node3/cpulist", "")
    return Captured(tree.root)


def _nps4(tree: Tree) -> Captured:
    """Modules by EDAC alone, bandwidths by the firmware, two cards."""
    tree.system()
    tree.cpus("AMD EPYC 9454 48-Core Processor", AVX512, [[12] * 4])
    distances = [" ".join("10" if i == j else "12" for j in range(4)) for i in range(4)]
    tree.memory(384 * GIB, 370 * GIB, [96 * GIB] * 4, distances)
    for node in range(4):
        tree.write(f"sys/devices/system/node/node{node}/access0/initiators/read_bandwidth", 110_000)
    for i in range(12):
        folder = f"sys/devices/system/edac/mc/mc{i // 3}/dimm{i % 3}"
        tree.write(f"{folder}/size", 32768)
        tree.write(f"{folder}/dimm_mem_type", "Registered-DDR5")
        tree.write(f"{folder}/dimm_label", f"mc#{i // 3}csrow#0channel#{i % 3}")
    tree.card("0000:01:00.0", node=3)
    tree.card("0000:81:00.0", node=1)
    cards = [
        FakeCard(
            "NVIDIA RTX A6000", 49140 << 20, 48000 << 20, f"00000000:{bus}:00.0", 8001, 384, (8, 6), (4, 16, 4, 16)
        )
        for bus in ("01", "81")
    ]
    return Captured(tree.root, FakeNvml(cards))


def _cgroup_v2(tree: Tree) -> Captured:
    """A slice of systemd's with 32 GiB, most of what it uses being cached files."""
    captured = _desktop(tree)
    group = "sys/fs/cgroup/user.slice/user-1000.slice"
    tree.write(f"{group}/memory.max", 32 * GIB)
    tree.write(f"{group}/memory.high", "max")
    tree.write(f"{group}/memory.current", 30 * GIB)
    tree.write(f"{group}/memory.stat", f"anon {4 * GIB}\ninactive_file {20 * GIB}\nslab_reclaimable {2 * GIB}")
    tree.write("sys/fs/cgroup/user.slice/memory.max", "max")
    tree.write(f"{group}/cpu.max", "400000 100000")
    return captured


def _cgroup_v1(tree: Tree) -> Captured:
    tree.system("4.18.0-553.el8.x86_64", "xfs")
    tree.cpus(
        "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz",
        AVX512.replace(" avx512_vnni avx512_bf16", ""),
        [[16]],
        vendor="GenuineIntel",
    )
    tree.memory(128 * GIB, 120 * GIB)
    tree.write("proc/self/cgroup", "4:memory:/batch/job7\n3:cpuset:/\n2:cpu,cpuacct:/batch/job7\n1:name=systemd:/")
    for folder, limit in (("", NO_LIMIT_V1), ("/batch", 64 * GIB), ("/batch/job7", 48 * GIB)):
        tree.write(f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes", limit)
        tree.write(f"sys/fs/cgroup/memory{folder}/memory.usage_in_bytes", 20 * GIB)
        tree.write(f"sys/fs/cgroup/memory{folder}/memory.stat", f"inactive_file {GIB}\ntotal_inactive_file {12 * GIB}")
    tree.write("sys/fs/cgroup/cpu,cpuacct/batch/job7/cpu.cfs_quota_us", 600_000)
    tree.write("sys/fs/cgroup/cpu,cpuacct/batch/job7/cpu.cfs_period_us", 100_000)
    return Captured(tree.root)


def _container(tree: Tree) -> Captured:
    """Eight hardware threads of a large machine, whose cgroup's path is not mounted inside."""
    tree.system(mounts="overlay")
    tree.cpus("AMD EPYC 7B13", AVX2, [[64]])
    tree.memory(512 * GIB, 400 * GIB)
    tree.write("proc/self/status", "Cpus_allowed_list:\t8-11,72-75")
    tree.write("proc/self/cgroup", "0::/kubepods.slice/pod42/abcdef")
    tree.write("proc/1/cgroup", "0::/kubepods.slice/pod42/abcdef")
    tree.write("sys/fs/cgroup/memory.max", 64 * GIB)
    tree.write("sys/fs/cgroup/memory.current", 10 * GIB)
    tree.write("sys/fs/cgroup/memory.stat", "inactive_file 0")
    return Captured(tree.root)


def _wsl2(tree: Tree) -> Captured:
    """Half of the host's memory, models on a mount of Windows, a library that knows little."""
    tree.system("5.15.167.4-microsoft-standard-WSL2")
    tree.cpus("AMD Ryzen 7 5800X 8-Core Processor", f"hypervisor {AVX2}", [[8]])
    tree.memory(16 * GIB, 14 * GIB)
    tree.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sdc rw\n30 22 0:40 / /home/user rw - 9p drvfs rw")
    return Captured(tree.root, FakeNvml([FakeCard("NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB)]))


def _masked_amx(tree: Tree) -> Captured:
    """A hypervisor that shows tiles but hides what unpacks to them."""
    tree.system("6.1.0")
    tree.cpus(
        "Intel Xeon Processor (SapphireRapids)",
        AMX.replace(" avx512_fp16", "") + " hypervisor",
        [[8]],
        threads=1,
        vendor="GenuineIntel",
    )
    tree.memory(32 * GIB, 30 * GIB)
    tree.write("sys/class/dmi/id/sys_vendor", "QEMU")
    return Captured(tree.root, amx_refusal="masked")


def _refused_amx(tree: Tree) -> Captured:
    tree.system("5.14.0-427.el9")
    tree.cpus("Intel(R) Xeon(R) Gold 6430", AMX, [[32]], vendor="GenuineIntel")
    tree.memory(256 * GIB, 250 * GIB)
    return Captured(tree.root, amx_refusal="the operating system refuses this process the use of tiles")


def _hybrid(tree: Tree) -> Captured:
    """Two kinds of cores, a card without a library to ask, and one in the processor."""
    tree.system()
    tree.cpus("Intel(R) Core(TM) i9-14900K", f"{AVX2} avx_vnni", [[24]], threads=1, vendor="GenuineIntel")
    tree.memory(96 * GIB, 90 * GIB)
    tree.write("sys/devices/cpu_core/cpus", "0-7")
    tree.write("sys/devices/cpu_atom/cpus", "8-23")
    slots = [(f"BANK {i}", f"Controller{i // 2}-ChannelA-DIMM{i % 2}") for i in range(4)]
    tree.udev(slots, 48 * GIB, 5600, empty=0)
    tree.card("0000:00:02.0", vendor="0x8086")
    tree.card("0000:01:00.0", speed="32.0 GT/s PCIe", width=8)
    tree.write(
        "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA GeForce RTX 5070\nIRQ:   \t\t 170"
    )
    return Captured(tree.root)


def _unified(tree: Tree) -> Captured:
    """Arm, and a card whose memory is the machine's."""
    tree.system("6.11.0-nvidia")
    tree.cpus("", "", [[20]], threads=1)
    tree.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd i8mm sve2")
    tree.memory(120 * GIB, 110 * GIB)
    tree.card("000f:01:00.0", node=0)
    return Captured(tree.root, FakeNvml([FakeCard("NVIDIA GB10", 0, 0, "0000000F:01:00.0", capability=(12, 1))]))


MACHINES: dict[str, Callable[[Tree], Captured]] = {
    "desktop": _desktop,
    "two-sockets": _two_sockets,
    "snc": _snc,
    "nps4": _nps4,
    "cgroup-v2": _cgroup_v2,
    "cgroup-v1": _cgroup_v1,
    "container": _container,
    "wsl2": _wsl2,
    "masked-amx": _masked_amx,
    "refused-amx": _refused_amx,
    "hybrid": _hybrid,
    "unified": _unified,
}


def write_machine(name: str, root: Path) -> Captured:
    return MACHINES[name](Tree(root))
