"""Where the system itself runs: on the metal, in a virtual machine, in a container, in WSL."""

from __future__ import annotations

from pathlib import Path

from ktdesk_engine.system_files import text_of
from ktdesk_wizard.probe.cpuinfo import CpuInfo
from ktdesk_wizard.probe.fact import Fact, derived, reported, reported_or_unknown
from ktdesk_wizard.probe.machine_facts import SurroundingsFacts

OS_RELEASE = "proc/sys/kernel/osrelease"
VIRTUAL_VENDORS = {
    "QEMU": "QEMU",
    "VMware": "VMware",
    "innotek": "VirtualBox",
    "Xen": "Xen",
    "Amazon EC2": "Amazon EC2",
    "Google": "Google Compute Engine",
    "Microsoft Corporation": "Hyper-V",
}
"""How the maker of a virtual machine's board begins -> its name."""


def read_surroundings(root: Path, info: CpuInfo) -> SurroundingsFacts:
    release = text_of(root / OS_RELEASE)
    is_wsl = "microsoft" in release.lower()
    return SurroundingsFacts(
        kernel=reported_or_unknown(release or None, f"/{OS_RELEASE}", f"/{OS_RELEASE} cannot be read"),
        virtual_machine=_virtual_machine(root, info, is_wsl),
        container=_container(root),
        wsl=derived(is_wsl, f"'microsoft' in /{OS_RELEASE}"),
    )


def _virtual_machine(root: Path, info: CpuInfo, is_wsl: bool) -> Fact[str]:
    if is_wsl:
        return derived("WSL2 (Hyper-V)", f"/{OS_RELEASE}")
    if "hypervisor" not in info.flags:
        return derived("none", "no flag 'hypervisor' in /proc/cpuinfo")
    vendor = text_of(root / "sys/class/dmi/id/sys_vendor")
    names = [name for start, name in VIRTUAL_VENDORS.items() if vendor.startswith(start)]
    if names:
        return reported(names[0], "/sys/class/dmi/id/sys_vendor")
    return derived(vendor or "yes, kind unknown", "flag 'hypervisor' in /proc/cpuinfo")


def _container(root: Path) -> Fact[str]:
    signs = {".dockerenv": "Docker", "run/.containerenv": "Podman"}
    for path, name in signs.items():
        if (root / path).exists():
            return derived(name, f"/{path}")
    told = text_of(root / "run/systemd/container")
    if told:
        return reported(told, "/run/systemd/container")
    groups = text_of(root / "proc/1/cgroup")
    for part, name in {"docker": "Docker", "kubepods": "Kubernetes", "libpod": "Podman", "/lxc": "LXC"}.items():
        if part in groups:
            return derived(name, "/proc/1/cgroup")
    return derived("none", "no sign of one in /, /run and /proc/1/cgroup")
