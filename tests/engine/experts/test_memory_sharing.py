"""Resident experts and pages of the cache in one memory: who gives up what, and that nothing else changes by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine import memory_sharing
from ktdesk_engine.backends.host_memory import HostMemory
from ktdesk_engine.backends.host_thread import HostSlots, HostThreadAccelerator
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import AcceleratorMemoryError, ConfigError
from ktdesk_engine.kernels import _kernels, aligned_bytes
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence, LayerCacheShape
from ktdesk_engine.memory_sharing import SharingStats
from ktdesk_engine.placement_rules import Rule
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.prefix_cache.pages import page_keys
from ktdesk_engine.shared_cache import SharedKVCache

TinyPath = Callable[[str], Path]
MODELS = ("qwen3moe", "deepseek2-v3", "gpt-oss")
CONTEXT, SEQUENCES, CHUNK = 448, 2, 16


def config(**settings: object) -> EngineConfig:
    same = {"context": CONTEXT, "num_sequences": SEQUENCES, "num_threads": 1, "compute": "float32"}
    return EngineConfig(**{**same, "prefill_chunk": CHUNK, **settings})  # type: ignore[arg-type]


def shared(num_bytes: int, **settings: object) -> EngineConfig:
    options = {"accelerator": "host-thread", "stream_prompts": False, "move_ms": 1000.0, "accelerator_bytes": num_bytes}
    return config(**{**options, **settings})


def stats_of(engine: Engine) -> SharingStats:
    stats = engine.experts.sharing
    assert stats is not None
    return stats


def budget_with(path: Path, num_experts: int) -> int:
    """Bytes for the whole cache and so many experts beside it."""
    with Engine.load(path, shared(1 << 30)) as engine:
        slots = engine.experts._hybrid.residency.slots  # type: ignore[union-attr]
        assert slots is not None
        num_bytes = engine.cache.num_bytes + num_experts * (slots.slot_bytes + slots.side_bytes)
    return num_bytes + 200_000  # for what operations need while they run


def tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 250, count).tolist()


class Traffic:
    """Sequences that come, decode together and go: the same on every engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rows: list[np.ndarray] = []
        self.sequences: list[CachedSequence] = []

    def prompt(self, count: int, seed: int = 0) -> None:
        self.sequences.append(CachedSequence())
        self.rows.append(self.engine.runner.prefill(self.sequences[-1], tokens(count, seed)).copy())

    def decode(self, count: int) -> None:
        for step in range(count):
            ids = [(7 * step + 3 * row) % 250 for row in range(len(self.sequences))]
            self.rows.append(self.engine.runner.decode(self.sequences, ids).copy())

    def leave(self) -> None:
        self.engine.runner.release(self.sequences.pop())


def busy_and_calm(engine: Engine) -> list[np.ndarray]:
    """One short sequence, then two long ones, then one short one for long."""
    traffic = Traffic(engine)
    traffic.prompt(20)
    traffic.decode(40)
    traffic.prompt(300, seed=1)
    traffic.decode(70)
    traffic.leave()
    traffic.decode(180)
    traffic.leave()
    return traffic.rows


def assert_close(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=4e-5 * np.abs(other).max())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places go back after two looks instead of sixteen."""
    monkeypatch.setattr(memory_sharing, "CALM_CHECKS", 2)
    monkeypatch.setattr(memory_sharing, "KEPT_SHARE", 1000)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", MODELS)
def test_hybrid_is_the_cpu_alone_while_experts_give_memory_and_get_it_back(name: str, tiny_model: TinyPath) -> None:
    path = tiny_model(name)
    with Engine.load(path, config()) as engine:
        want = busy_and_calm(engine)
    with Engine.load(path, shared(budget_with(path, 3))) as engine:
        before, num_before = stats_of(engine), engine.experts.num_resident
        assert_close(busy_and_calm(engine), want)
        after = stats_of(engine)
    assert before.num_places < engine.cache.num_pages
    assert num_before > 3
    assert after.num_places_lent > 0
    assert after.num_experts_left > 0
    assert after.num_places_returned > 0
    assert after.num_slots > 3


def test_without_sharing_the_cache_has_all_from_the_start_and_the_answers_are_the_same(tiny_model: TinyPath) -> None:
    path = tiny_model("qwen3moe")
    num_bytes, results = budget_with(path, 3), []
    for share_memory in (True, False):
        with Engine.load(path, shared(num_bytes, share_memory=share_memory)) as engine:
            results.append((busy_and_calm(engine), engine.experts.sharing, engine.experts.num_resident))
    (with_it, stats, _), (without, none, num_resident) = results
    assert_close(with_it, without)
    assert stats is not None
    assert none is None
    assert num_resident in (3, 4, 5, 6, 7)


@pytest.mark.parametrize("settings", [{"accelerator_experts": 4}, {"move_ms": 0.0}, {"share_memory": False}])
def test_a_number_of_experts_that_was_asked_for_is_kept(settings: dict[str, object], tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), shared(1 << 30, **settings)) as engine:
        assert engine.experts.sharing is None


def test_the_budget_is_taken_once_and_never_exceeded(tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model("qwen3moe")
    num_bytes = budget_with(path, 3)
    held: list[int] = []
    honest = HostThreadAccelerator.hold

    def watch(device: HostThreadAccelerator, count: int, what: str) -> None:
        honest(device, count, what)
        held.append(device._held_bytes)

    monkeypatch.setattr(HostThreadAccelerator, "hold", watch)
    with Engine.load(path, shared(num_bytes)) as engine:
        num_holds = len(held)
        busy_and_calm(engine)
        assert len(held) == num_holds  # nothing is allocated while it runs
        stats = stats_of(engine)
        assert stats.num_slots * 98_304 + stats.num_places * engine.cache.page_bytes <= stats.num_bytes
    assert max(held) <= num_bytes


def test_a_recorded_step_holds_while_the_border_moves(tiny_model: TinyPath) -> None:
    path = tiny_model("qwen3moe")
    with Engine.load(path, shared(budget_with(path, 3))) as engine:
        traffic = Traffic(engine)
        traffic.prompt(20)
        traffic.decode(2)
        recorded = dict(engine.runner._programs)
        traffic.decode(200)
        assert stats_of(engine).num_places_lent > 0
        assert engine.runner._programs == recorded


def test_the_coldest_experts_leave(tiny_model: TinyPath) -> None:
    path = tiny_model("qwen3moe")
    with Engine.load(path, shared(budget_with(path, 3))) as engine:
        use = engine.experts.use
        assert use is not None
        heat = np.random.default_rng(0).permutation(48).reshape(3, 16) * 1e6
        engine.restore_use(heat)
        engine.experts._hybrid.residency._copy_seconds = 1e-6  # type: ignore[union-attr]  # all may move at once
        before = engine.experts.resident_mask
        traffic = Traffic(engine)
        traffic.prompt(400)
        after = engine.experts.resident_mask
    assert before is not None
    assert after is not None
    assert after.sum() < before.sum()
    assert heat[after].min() > heat[before & ~after].max()


@pytest.mark.usefixtures("soon")
def test_two_kinds_of_traffic_in_turns_move_the_border_once(tiny_model: TinyPath) -> None:
    """As long as both come within the time that places must be calm for."""
    path = tiny_model("qwen3moe")
    with Engine.load(path, shared(budget_with(path, 3))) as engine:
        traffic, before = Traffic(engine), stats_of(engine).num_places
        traffic.prompt(20)
        for turn in range(10):
            traffic.prompt(250, seed=turn)
            traffic.decode(3)
            traffic.leave()
            traffic.decode(15)
        after = stats_of(engine)
        num_needed = -(-(20 + 10 * 18) // PAGE_SIZE) + -(-253 // PAGE_SIZE)
        assert 0 < after.num_places_lent <= num_needed - before
        assert after.num_places_returned == 0


def test_experts_that_rules_force_never_leave_and_too_many_are_refused(tiny_model: TinyPath) -> None:
    path = tiny_model("qwen3moe")
    rules = (Rule(r"blk\.1\.ffn_.*_exps", "gpu"),)
    with Engine.load(path, shared(budget_with(path, 17), placement_rules=rules)) as engine:
        traffic = Traffic(engine)
        traffic.prompt(440)
        traffic.prompt(440)
        mask = engine.experts.resident_mask
        assert mask is not None
        assert mask[1].all()
        assert stats_of(engine).num_places == engine.cache.num_pages
    with pytest.raises(ConfigError, match=r"rules put 16 experts on the accelerator, but there is room for \d+:"):
        Engine.load(path, shared(budget_with(path, 3), placement_rules=rules))


def test_out_of_memory_in_mid_run_costs_experts_and_the_cache_keeps_what_it_holds(
    tiny_model: TinyPath, caplog: pytest.LogCaptureFixture
) -> None:
    path, request = tiny_model("qwen3moe"), Request(tuple(tokens(30)), SamplingConfig(temperature=0), max_tokens=12)
    with Engine.load(path, config()) as engine:
        want = [event.token_ids for event in engine.stream(request)]
    with Engine.load(path, shared(budget_with(path, 20))) as engine:
        before, num_before = stats_of(engine), engine.experts.num_resident
        stream = engine.stream(request)
        got = [next(stream).token_ids, next(stream).token_ids]
        _kernels.fail_memory(engine.accelerator.pool)  # type: ignore[union-attr]
        got += [event.token_ids for event in stream]
        after = stats_of(engine)
        assert after.num_bytes < before.num_bytes
        assert 0 < engine.experts.num_resident < num_before
    assert got == want
    assert "out of memory: experts move to the CPU" in caplog.text


@pytest.mark.parametrize("number", [1, 3])
def test_out_of_memory_while_experts_move_changes_no_answer(
    number: int, tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy to a slot needs memory for a moment."""
    path, honest, calls = tiny_model("qwen3moe"), HostSlots.put, []

    def full_once(slots: HostSlots, slot: int, layer: int, expert: int) -> None:
        calls.append(slot)
        if len(calls) == number:
            raise AcceleratorMemoryError("no room for a copy")
        honest(slots, slot, layer, expert)

    with Engine.load(path, config()) as engine:
        want = busy_and_calm(engine)
    with Engine.load(path, shared(budget_with(path, 12))) as engine:
        engine.experts._hybrid.residency._copy_seconds = 1e-6  # type: ignore[union-attr]  # all may move at once
        monkeypatch.setattr(HostSlots, "put", full_once)
        assert_close(busy_and_calm(engine), want)
        assert len(calls) > number
    assert "out of memory: experts move to the CPU" in caplog.text


def test_memory_that_others_took_before_loading_costs_experts_and_not_the_model(
    tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between a look at what is free and taking it."""
    path, honest = tiny_model("qwen3moe"), HostThreadAccelerator.hold
    most = budget_with(path, 12)

    def refuse_much(device: HostThreadAccelerator, count: int, what: str) -> None:
        if count > most:
            raise AcceleratorMemoryError(f"{what} take {count:,} bytes: others were faster")
        honest(device, count, what)

    monkeypatch.setattr(HostThreadAccelerator, "hold", refuse_much)
    with Engine.load(path, shared(1 << 30)) as engine:
        assert 0 < engine.experts.num_resident < 48
    assert "others were faster" in caplog.text


def test_a_cache_whose_memory_others_took_in_mid_run_gets_it_back_once_it_is_free(
    tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between giving the block back and taking a smaller one. Until then each request says what is missing."""
    path = tiny_model("qwen3moe")
    with Engine.load(path, config()) as engine:
        traffic = Traffic(engine)
        traffic.prompt(100)
        traffic.decode(3)
        want = traffic.rows
    with Engine.load(path, shared(budget_with(path, 12))) as engine:
        traffic, device = Traffic(engine), engine.accelerator
        traffic.prompt(100)
        assert isinstance(device, HostThreadAccelerator)
        honest = device.hold

        def taken(count: int, what: str) -> None:
            honest(count, what)
            if count < 0:
                monkeypatch.setattr(device, "hold", refused)

        def refused(count: int, what: str) -> None:
            raise AcceleratorMemoryError(f"{what} take {count:,} bytes: others were faster")

        monkeypatch.setattr(device, "hold", taken)
        with pytest.raises(AcceleratorMemoryError, match=r"keys and values take .*: others were faster"):
            engine.resize_experts(0)
        with pytest.raises(AcceleratorMemoryError, match=r"keys and values take .*: others were faster"):
            traffic.decode(1)
        with pytest.raises(AcceleratorMemoryError, match=r"keys and values take .*: others were faster"):
            traffic.prompt(10)
        traffic.leave()
        monkeypatch.setattr(device, "hold", honest)
        traffic.decode(3)
        assert_close(traffic.rows, want)


def test_a_cache_that_does_not_fit_is_refused(tiny_model: TinyPath) -> None:
    with pytest.raises(AcceleratorMemoryError, match=r"keys and values take .* 1,000 free"):
        Engine.load(tiny_model("qwen3moe"), shared(1000))


def test_prefixes_nobody_uses_leave_before_experts_once_they_have_their_share(tiny_model: TinyPath) -> None:
    path = tiny_model("qwen3moe")
    with Engine.load(path, shared(budget_with(path, 3))) as engine:
        cache = engine.cache
        assert isinstance(cache, SharedKVCache)
        prefixes = engine.make_prefix_cache(CacheLimits())
        cache.num_kept_places = 4
        for number in range(3):
            sequence = CachedSequence()
            ids = tokens(3 * PAGE_SIZE, seed=number)
            lease = prefixes.acquire(page_keys(ids, PAGE_SIZE))
            assert prefixes.make_room(3)
            engine.runner.prefill(sequence, ids)
            prefixes.insert(lease, page_keys(ids, PAGE_SIZE), sequence.pages)
            prefixes.release(lease)
        assert cache.num_places == 4
        assert cache.num_used_pages == 4
        prefixes.check_integrity()


SHAPES = [LayerCacheShape(2, 16, 16), LayerCacheShape(1, 96, 64, values_in_keys=True)]


class Loan:
    """Lends what is asked for."""

    def __init__(self, cache: SharedKVCache) -> None:
        self.cache = cache
        cache.lender = self

    def lend(self, num_places: int) -> None:
        self.cache.add_places(self.cache.first_place - num_places)


def make_cache(first_place: int) -> SharedKVCache:
    cache = SharedKVCache(SHAPES, 8 * PAGE_SIZE, "f16", 1, HostMemory())
    cache.lie_in(aligned_bytes(8, cache.page_bytes), first_place)
    Loan(cache)
    return cache


def content_of(cache: SharedKVCache, page: int) -> np.ndarray:
    return np.random.default_rng(page).integers(0, 256, cache.page_bytes).astype(np.uint8)


def test_pages_that_move_and_pages_that_were_lifted_hold_what_they_held() -> None:
    cache = make_cache(first_place=3)
    pages = [cache.take_page() for _ in range(7)]
    assert cache.num_places == 7
    for page in pages:
        cache.write_page(page, content_of(cache, page))
    for page in (pages.pop(1), pages.pop(2)):
        cache.give_back(page)
    cache.give_up_places(3)
    assert sorted(cache.places(pages)) == [3, 4, 5, 6, 7]
    for page in pages:
        np.testing.assert_array_equal(cache.read_page(page), content_of(cache, page))
    for _ in range(2):
        cache.lift()
    cache.give_back(pages.pop())
    for page in pages:
        np.testing.assert_array_equal(cache.read_page(page), content_of(cache, page))
    cache.lie_in(aligned_bytes(8, cache.page_bytes), 2)
    assert sorted([*cache.places(pages), *cache._free_places]) == [2, 3, 4, 5, 6, 7]
    for page in pages:
        np.testing.assert_array_equal(cache.read_page(page), content_of(cache, page))


def test_layers_of_a_page_lie_side_by_side_and_do_not_overlap() -> None:
    cache = make_cache(first_place=0)
    arrays = [cache.keys(0).pages, cache.values(0).pages, cache.keys(1).pages]
    assert cache.values(1).pages is cache.keys(1).pages
    for number, array in enumerate(arrays):
        array[:] = number
    content = cache.read_page(cache.take_page())
    np.testing.assert_array_equal(np.unique(content, return_counts=True)[1], [array[0].nbytes for array in arrays])


def test_a_table_names_places_instead_of_pages() -> None:
    cache, sequence = make_cache(first_place=6), CachedSequence()
    context = cache.placed(cache.extend(sequence, 3 * PAGE_SIZE))
    assert sorted(context.page_tables[0, :3].tolist()) == [5, 6, 7]
    assert cache.places(sequence.pages) == context.page_tables[0, :3].tolist()


def test_numbers_tell_what_lies_on_the_accelerator(tiny_model: TinyPath) -> None:
    path = tiny_model("qwen3moe")
    with Engine.load(path, shared(budget_with(path, 3))) as engine:
        Traffic(engine).prompt(400)
        numbers = engine.accelerator_numbers()
        assert numbers["resident_experts"] == engine.experts.num_resident
        assert numbers["cache_places"] == -(-400 // PAGE_SIZE)
        assert numbers["places_lent_total"] > 0
    with Engine.load(path, config()) as engine:
        assert engine.accelerator_numbers() == {}
