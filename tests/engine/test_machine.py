"""What a process may use, read from made-up trees of /sys and /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kernels import ThreadPlace
from ktdesk_engine.machine import (
    PIN_VARIABLE,
    Core,
    cpu_quota,
    default_num_threads,
    num_physical_cores,
    thread_places,
    usable_cores,
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def make_cpus(root: Path, siblings: dict[int, str], nodes: dict[int, str] | None = None) -> Path:
    for cpu, text in siblings.items():
        write(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", text)
    for node, text in (nodes or {}).items():
        write(root / f"sys/devices/system/node/node{node}/cpulist", text)
    return root


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    """Four cores of two hardware threads: cores 0, 1 on node 0; cores 2, 3 on node 1."""
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    return make_cpus(tmp_path, siblings, {0: "0-1,4-5", 1: "2-3,6-7"})


def test_a_core_is_counted_once_and_on_its_node(two_nodes: Path) -> None:
    assert usable_cores(two_nodes, range(8)) == (Core(0, 0), Core(0, 1), Core(1, 2), Core(1, 3))


def test_of_a_core_the_first_hardware_thread_that_may_be_used_is_taken(two_nodes: Path) -> None:
    assert usable_cores(two_nodes, (3, 4, 5, 7)) == (Core(0, 4), Core(0, 5), Core(1, 3))


def test_a_machine_that_tells_nothing_has_one_node_and_a_core_for_each_cpu(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, (0, 2)) == (Core(0, 0), Core(0, 2))


def test_this_machine_has_the_cores_of_its_affinity() -> None:
    cores = usable_cores()
    assert {core.cpu for core in cores} <= os.sched_getaffinity(0)
    assert num_physical_cores() == len(cores)


@pytest.mark.parametrize(
    ("limit", "quota"), [("150000 100000", 1.5), ("max 100000", None), ("50000 100000", 0.5), ("nonsense", None)]
)
def test_version_2_of_cgroups_tells_the_quota(tmp_path: Path, limit: str, quota: float | None) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/user.slice/app")
    write(tmp_path / "sys/fs/cgroup/user.slice/app/cpu.max", limit)
    assert cpu_quota(tmp_path) == quota


def test_the_narrowest_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/outer/inner")
    write(tmp_path / "sys/fs/cgroup/outer/cpu.max", "200000 100000")
    write(tmp_path / "sys/fs/cgroup/outer/inner/cpu.max", "max 100000")
    assert cpu_quota(tmp_path) == 2.0


def test_version_1_of_cgroups_tells_the_quota(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/docker/abc\n0::/")
    folder = tmp_path / "sys/fs/cgroup/cpu,cpuacct/docker/abc"
    write(folder / "cpu.cfs_quota_us", "300000")
    write(folder / "cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) == 3.0


def test_minus_one_is_no_quota_in_version_1(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "1:cpu:/")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) is None


def test_in_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/system.slice/docker-abc.scope")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "400000 100000")
    assert cpu_quota(tmp_path) == 4.0


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "num_threads"), [(50, 1), (150, 1), (200, 2), (399, 3), (900, 4)])
def test_a_quota_limits_the_threads_to_whole_cores(two_nodes: Path, quota: int, num_threads: int) -> None:
    write(two_nodes / "proc/self/cgroup", "0::/")
    write(two_nodes / "sys/fs/cgroup/cpu.max", f"{quota * 1000} 100000")
    assert default_num_threads(two_nodes, range(8)) == num_threads
    assert len(thread_places(root=two_nodes, cpus=range(8))) == num_threads


def test_threads_are_pinned_to_the_cores_of_their_node(two_nodes: Path) -> None:
    places = thread_places(pinning="node", root=two_nodes, cpus=range(8))
    assert places == (ThreadPlace(0, (0, 1)),) * 2 + (ThreadPlace(1, (2, 3)),) * 2


def test_threads_can_be_pinned_to_a_core_each(two_nodes: Path) -> None:
    places = thread_places(pinning="core", root=two_nodes, cpus=range(8))
    assert places == (ThreadPlace(0, (0,)), ThreadPlace(0, (1,)), ThreadPlace(1, (2,)), ThreadPlace(1, (3,)))


def test_threads_can_be_left_to_the_system(two_nodes: Path) -> None:
    assert thread_places(3, "none", root=two_nodes, cpus=range(8)) == (
        ThreadPlace(0, ()),
        ThreadPlace(1, ()),
        ThreadPlace(1, ()),
    )


def test_more_threads_than_cores_share_the_cores_of_their_node(two_nodes: Path) -> None:
    places = thread_places(6, "core", root=two_nodes, cpus=range(8))
    assert places == (ThreadPlace(0, (0, 1)),) * 3 + (ThreadPlace(1, (2, 3)),) * 3


def test_a_node_without_threads_is_no_group(two_nodes: Path) -> None:
    assert [place.group for place in thread_places(1, root=two_nodes, cpus=range(8))] == [0]
    assert [place.group for place in thread_places(2, root=two_nodes, cpus=(0, 1, 4))] == [0, 0]


@pytest.mark.parametrize(("num_threads", "num_nodes"), [(1, 1), (1, 3), (2, 2), (5, 2), (7, 4), (64, 5)])
def test_pretended_nodes_have_groups_that_ascend(two_nodes: Path, num_threads: int, num_nodes: int) -> None:
    groups = [place.group for place in thread_places(num_threads, None, num_nodes, root=two_nodes, cpus=range(8))]
    assert len(groups) == num_threads
    assert sorted(set(groups)) == list(range(min(num_threads, num_nodes)))
    assert groups == sorted(groups)


def test_the_environment_chooses_the_pinning(two_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIN_VARIABLE, "none")
    assert thread_places(2, root=two_nodes, cpus=range(8)) == (ThreadPlace(0, ()), ThreadPlace(1, ()))
    monkeypatch.setenv(PIN_VARIABLE, "sideways")
    with pytest.raises(ConfigError, match="KTDESK_PIN must be one of node, core, none: 'sideways'"):
        thread_places(2, root=two_nodes, cpus=range(8))
