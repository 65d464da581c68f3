"""Cards, disk, and where the system itself runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ktdesk_engine.backends.cuda.visible import VISIBLE, hides_all
from ktdesk_wizard.doctor.diagnosis import Case, Evidence, Finding, evidence

GIB = 2**30
FIRST_DRIVER = (525, 60)
"""Of CUDA 12, which present builds of torch are made for."""
SLOW_DISK_BYTES_S = 400e6
"""A model of 100 GB then takes four minutes to load."""
LITTLE_ROOM_BYTES = 20 * GIB
SLOW_FILESYSTEMS = {"9p", "drvfs", "fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "vboxsf", "virtiofs", "sshfs"}


def old_driver(case: Case) -> Iterator[Finding]:
    driver = case.facts.gpus.driver
    numbers = tuple(int(number) for number in re.findall(r"\d+", driver.value or "")[:2])
    if driver.value and numbers and numbers < FIRST_DRIVER:
        wanted = ".".join(map(str, FIRST_DRIVER))
        yield Finding(
            "old-driver",
            "wrong",
            "the driver of the cards is too old for CUDA 12",
            (evidence(driver),),
            f"install a driver from {wanted} on",
        )


def unasked_cards(case: Case) -> Iterator[Finding]:
    """Cards on the bus whose library does not answer: their memory stays unknown."""
    gpus = case.facts.gpus
    if gpus.note.value:
        yield Finding(
            "cards-unknown",
            "wrong",
            "there are cards that cannot be asked",
            (evidence(gpus.note), Evidence("unknown", gpus.driver.source)),
            "install the cards' driver, and `pip install 'ktdesk[gpu]'`",
        )


def hidden_cards(case: Case) -> Iterator[Finding]:
    gpus, named = case.facts.gpus, case.environment.get(VISIBLE, "")
    if gpus.gpus and gpus.visible.value == ():
        yield Finding(
            "cards-hidden",
            "note" if hides_all(named) else "wrong",
            "no card can be used: CUDA sees none of those that are here",
            (Evidence(f"{len(gpus.gpus)} cards, none visible", gpus.visible.source),),
            f"unset {VISIBLE}, or name a card by its number or UUID: `nvidia-smi -L` lists them",
        )


def narrow_links(case: Case) -> Iterator[Finding]:
    """The width does not fall when a link is idle, as the generation does."""
    for gpu in case.facts.gpus.gpus:
        width, best = gpu.link.width, gpu.link.max_width
        if width.value and best.value and width.value < best.value:
            yield Finding(
                "narrow-link",
                "slow",
                f"card {gpu.index} has {width.value} of {best.value} PCIe lanes",
                (evidence(width), evidence(best)),
                "put it into a slot with all lanes, or seat it anew",
            )


def disk(case: Case) -> Iterator[Finding]:
    facts = case.facts.disk
    if facts.is_writable.value is False:
        yield Finding(
            "folder-unwritable",
            "wrong",
            f"the folder of the models cannot be written: {facts.folder}",
            (Evidence("no", facts.is_writable.source),),
            f"chown or chmod it, or name another with --home DIR or KTDESK_HOME ({facts.folder})",
        )
    if facts.free_bytes.value is not None and facts.free_bytes.value < LITTLE_ROOM_BYTES:
        yield Finding(
            "disk-full",
            "note",
            "there is little room for models",
            (evidence(facts.free_bytes, lambda value: f"{value / GIB:.1f} GiB free"),),
            "`ktdesk models rm` removes some; --home DIR names another disk",
        )
    if facts.filesystem.value in SLOW_FILESYSTEMS:
        yield Finding(
            "slow-filesystem",
            "slow",
            f"models lie on {facts.filesystem.value}, which is slow to load from",
            (evidence(facts.filesystem),),
            "keep models on a disk of this system: --home DIR or KTDESK_HOME",
        )
    speed = facts.read_bytes_s
    if speed.value and speed.value < SLOW_DISK_BYTES_S:
        yield Finding(
            "slow-disk",
            "slow",
            f"models load at {speed.value / 1e6:.0f} MB/s: {100e9 / speed.value / 60:.0f} minutes for 100 GB",
            (evidence(speed, lambda value: f"{value / 1e6:.0f} MB/s"),),
            "keep models on an NVMe disk: --home DIR or KTDESK_HOME",
        )


def small_wsl(case: Case) -> Iterator[Finding]:
    wsl, memory = case.facts.surroundings.wsl, case.facts.memory.total_bytes
    if wsl.value and memory.value is not None:
        yield Finding(
            "wsl-memory",
            "note",
            "WSL gets half of the host's memory unless told otherwise",
            (evidence(wsl, lambda value: "yes"), evidence(memory, lambda value: f"{value / GIB:.1f} GiB")),
            "set memory= below [wsl2] in .wslconfig of the Windows user, then `wsl --shutdown`",
        )
