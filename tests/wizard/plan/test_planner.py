"""Plans on captured machines. The models are shapes alone, so that large ones cost nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from captured import captured_facts
from machine_trees import GIB, MACHINES
from planned_models import CPU_ONLY, WITH_GPU, plan, qwen3_30b, tensor

from ktdesk.plan_text import as_text, ways_text
from ktdesk_engine.benchmark.kernel_shares import KernelShare
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.errors import WishError
from ktdesk_wizard.plan.cache import grouped_query, needed_bytes
from ktdesk_wizard.plan.ceilings import MEASURED_SHARE
from ktdesk_wizard.plan.choose import USEFUL_CONTEXT, best_of, choose_plan, compared, why_not
from ktdesk_wizard.plan.ledger import Sizes, buffer_bytes
from ktdesk_wizard.plan.plan import MEMORY, Plan
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import BITS_PER_WEIGHT, requantized
from ktdesk_wizard.plan.ways import ways_to_compute
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.fact import measured
from ktdesk_wizard.probe.machine_facts import MachineFacts


@pytest.mark.parametrize("abilities", [CPU_ONLY, WITH_GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", MACHINES)
def test_the_ledger_adds_up_on_every_machine(name: str, abilities: EngineAbilities, tmp_path: Path) -> None:
    facts = captured_facts(name, tmp_path)
    made = make_plan(facts, qwen3_30b(), Wishes(context=8192), abilities)
    for total in made.totals:
        staying = sum(e.num_bytes for e in made.ledger if e.place == total.place and not e.is_transient)
        assert staying <= total.num_bytes < 1.1 * staying
        assert all(entry.num_bytes >= 0 for entry in made.ledger)
    weights = sum(e.num_bytes for e in made.ledger if "routed experts" in e.what and e.place == MEMORY)
    in_file = 48 * 128 * 3 * 2048 * 768 * 144 // 256
    assert in_file <= weights <= in_file * 149 // 144  # none twice, none lost; panels have 148 bytes for 144
    assert as_text(made, explain=True)


def test_the_cache_of_the_ledger_is_what_the_model_needs(tmp_path: Path) -> None:
    made = plan(captured_facts("desktop", tmp_path), context=32768)
    (cache,) = [entry for entry in made.ledger if entry.what.startswith("cache")]
    assert cache.num_bytes == needed_bytes(qwen3_30b().layers, 32768, "f16") == 3 * GIB


def test_of_an_embedding_in_the_file_counts_what_is_mapped_around_the_rows_of_the_context(tmp_path: Path) -> None:
    facts, model = captured_facts("desktop", tmp_path), qwen3_30b()
    whole = model.tensors[0].num_bytes

    def rows(context: int) -> int:
        made = make_plan(facts, model, Wishes(context=context), CPU_ONLY)
        return next(entry.num_bytes for entry in made.ledger if entry.what == "embedding")

    assert rows(64) == pytest.approx(64 * 65536, rel=0.02), "few, so they hardly overlap"
    assert rows(40960) == pytest.approx(whole, rel=0.001)
    tied = replace(model, tensors=tuple(t for t in model.tensors if t.name != "output.weight"))
    made = make_plan(facts, tied, Wishes(context=64), CPU_ONLY)
    assert [e.num_bytes for e in made.ledger if e.what == "embedding rows"] == [rows(64)]


def test_a_server_is_planned_where_there_is_one(tmp_path: Path) -> None:
    facts, wishes = captured_facts("desktop", tmp_path), Wishes(context=8192)
    served, alone = (make_plan(facts, qwen3_30b(), wishes, CPU_ONLY, has_server=each) for each in (True, False))
    assert [e.num_bytes for e in served.ledger if e.what == "server"] == [
        served.bytes_of(MEMORY) - alone.bytes_of(MEMORY)
    ]


def test_what_a_dense_layer_needed_stays_beside_what_experts_need() -> None:
    sizes = Sizes(512, "f16", 1, 512, is_packed=True, has_huge_pages=True, cuts_windows=False)
    model = qwen3_30b(2)
    dense = replace(model, tensors=(*model.tensors, tensor("blk.0.ffn_gate.weight", 2048, 6144)))
    assert buffer_bytes(dense, sizes) - buffer_bytes(model, sizes) == 512 * 2 * 6144 * 4


@pytest.mark.parametrize(
    ("isa", "wishes", "num_tokens"),
    [
        ("amx", {}, 2048),
        ("amx", {"compute": "int8"}, 512),
        ("avx512", {}, 512),
        ("amx", {"devices": "gpu"}, 512),
    ],
)
def test_buffers_are_of_the_chunk_that_the_engine_takes(
    isa: str, wishes: dict[str, str], num_tokens: int, tmp_path: Path
) -> None:
    facts = captured_facts("desktop", tmp_path)
    facts = replace(facts, cpu=replace(facts.cpu, isa=measured(isa, "test")))
    made = plan(facts, context=8192, **wishes)
    assert bool(made.gpu_parts) == ("devices" in wishes)
    (entry,) = (e for e in made.ledger if e.what == "compute buffers" and e.place == MEMORY)
    assert entry.formula == f"a layer of {num_tokens} tokens, and logits"
    (short,) = (e for e in plan(facts, context=64).ledger if e.what == "compute buffers")
    assert short.formula == "a layer of 64 tokens, and logits"


def test_a_desktop_with_room_runs_it_as_trained(tmp_path: Path) -> None:
    made = plan(captured_facts("desktop", tmp_path))
    assert made.verdict.kind == "fits"
    assert made.context == 40960
    assert (made.num_threads, made.isa, made.cache_type) == (16, "avx512", "f16")
    assert made.command == ("ktdesk", "chat", "qwen3.gguf", "--context", "40960")
    assert 17 * GIB < made.bytes_of(MEMORY) < 23 * GIB


def test_what_others_use_can_be_freed(tmp_path: Path) -> None:
    facts = captured_facts("masked-amx", tmp_path)  # 32 GiB
    facts = replace(facts, memory=replace(facts.memory, available_bytes=measured(12 * GIB, "test")))
    made = plan(facts, context=8192)
    assert made.verdict.kind == "fits if you free memory"
    assert made.verdict.missing_bytes == made.bytes_of(MEMORY) - 12 * GIB
    assert "free" in made.verdict.message


def test_a_context_that_is_too_long_is_told_the_longest_that_fits(tmp_path: Path) -> None:
    facts = captured_facts("wsl2", tmp_path)
    small = qwen3_30b(38)
    made = plan(facts, small, context=40960)
    assert made.verdict.kind == "does not fit"
    assert made.verdict.change is not None
    assert made.verdict.change.startswith("--context ")
    context = int(made.verdict.change.split()[1])
    assert plan(facts, small, context=context).verdict.kind != "does not fit"
    assert plan(facts, small, context=context + 64).verdict.kind == "does not fit"


def test_weights_that_are_too_large_are_told_the_file_that_would_fit(tmp_path: Path) -> None:
    made = plan(captured_facts("wsl2", tmp_path), qwen3_30b(kind=WeightType.Q6_K))
    assert made.verdict.kind == "does not fit"
    assert "bits a weight" in (made.verdict.change or "")


def test_limits_of_a_group_and_of_the_user_count(tmp_path: Path) -> None:
    facts = captured_facts("cgroup-v2", tmp_path)  # 24 of 32 GiB are free
    assert plan(facts, context=8192).verdict.kind == "fits"
    assert plan(facts, context=8192, max_memory_bytes=16 * GIB).verdict.kind == "does not fit"


def test_a_machine_that_does_not_tell_its_memory_gets_no_verdict_but_the_need(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    nothing = replace(facts.memory.available_bytes, value=None, confidence="unknown")
    made = plan(replace(facts, memory=replace(facts.memory, available_bytes=nothing)))
    assert made.verdict.kind == "unknown"
    assert "unknown" in made.verdict.message


def test_nodes_share_threads_and_weights_by_their_cores(tmp_path: Path) -> None:
    made = plan(captured_facts("snc", tmp_path), context=4096)
    assert [share.num_threads for share in made.nodes] == [43, 43, 42]
    largest, smallest = made.nodes[0].weight_bytes, made.nodes[2].weight_bytes
    assert largest / smallest == pytest.approx(43 / 42, rel=1e-6)


def test_without_a_backend_for_cards_they_are_refused_with_the_way_to_see_the_plan(tmp_path: Path) -> None:
    made = plan(captured_facts("desktop", tmp_path))
    assert made.gpu_parts == ()
    assert any("RTX 4090" in rejected.what and "--device gpu" in rejected.why for rejected in made.rejected)
    shown = plan(captured_facts("desktop", tmp_path / "again"), devices="gpu")
    assert shown.gpu_parts
    assert any("ktdesk doctor --gpu" in note for note in shown.notes)
    assert made.command[-2:] == ("--context", str(made.context))
    assert shown.command[-2:] == ("--accelerator", "cuda")


def test_without_a_card_a_plan_for_one_says_what_was_looked_for_and_what_it_assumes(tmp_path: Path) -> None:
    made = plan(captured_facts("masked-amx", tmp_path), devices="gpu")
    assert not made.uses_card
    assert "a card is asked for, but no NVIDIA card was found (" in made.notes[0]
    assert "for the processor and its memory; --what-if FILE" in made.notes[0]
    small = plan(captured_facts("desktop", tmp_path / "desktop"), devices="gpu", max_gpu_bytes=GIB)
    assert "no card can be used (card 0 (NVIDIA GeForce RTX 4090): what every token uses and" in small.notes[0]
    unasked = plan(captured_facts("snc", tmp_path / "snc"))
    assert not any("a card is asked for" in note for note in unasked.notes)


def test_what_every_token_uses_goes_on_the_card_first_and_experts_fill_it(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    made = make_plan(facts, qwen3_30b(), Wishes(context=8192, max_gpu_bytes=8 * GIB), WITH_GPU)
    (part,) = made.gpu_parts
    assert (part.first_layer, part.last_layer) == (0, 47)
    assert 0 < part.num_resident < part.num_experts == 48 * 128
    assert 8 * GIB - 3e6 < made.bytes_of("gpu 0") <= 8 * GIB  # an expert is 2.7 MB
    in_memory = [entry.what for entry in made.ledger if entry.place == MEMORY]
    assert "attention" not in in_memory
    assert not any(what.startswith("cache") for what in in_memory)


def test_a_card_with_room_for_all_takes_all_experts(tmp_path: Path) -> None:
    made = make_plan(captured_facts("two-sockets", tmp_path), qwen3_30b(), Wishes(context=8192), WITH_GPU)
    assert made.gpu_parts[0].num_resident == 48 * 128


def test_of_two_cards_one_is_used_as_the_engine_does(tmp_path: Path) -> None:
    made = make_plan(captured_facts("nps4", tmp_path), qwen3_30b(), Wishes(context=8192), WITH_GPU)
    assert [part.gpu for part in made.gpu_parts] == [0]
    assert any("the engine uses one card, 0 in this plan" in rejected.why for rejected in made.rejected)


def test_a_card_that_cannot_hold_what_every_token_uses_gets_nothing(tmp_path: Path) -> None:
    wishes = Wishes(context=40960, max_gpu_bytes=3 * GIB)
    made = make_plan(captured_facts("desktop", tmp_path), qwen3_30b(), wishes, WITH_GPU)
    assert made.gpu_parts == ()
    assert any("ask for a smaller context" in rejected.why for rejected in made.rejected)
    (cache,) = [entry for entry in made.ledger if entry.what.startswith("cache")]
    assert (cache.place, cache.num_bytes) == (MEMORY, needed_bytes(qwen3_30b().layers, 40960, "f16"))


def rules(*pairs: tuple[str, str]) -> dict[str, str]:
    return {
        "placement": "mine.yaml",
        "placement_rules": json.dumps([{"match": match, "place": place} for match, place in pairs]),
    }


def test_rules_shape_the_card_and_the_command_hands_them_on(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)

    def with_rules(*pairs: tuple[str, str]) -> Plan:
        wishes = Wishes(context=8192, max_gpu_bytes=8 * GIB, **rules(*pairs))  # type: ignore[arg-type]
        return make_plan(facts, qwen3_30b(), wishes, WITH_GPU)

    none = with_rules(("_exps", "cpu"))
    assert none.gpu_parts[0].num_resident == 0
    assert not any(entry.what == "routed experts" for entry in none.ledger if entry.place == "gpu 0")
    assert none.command[-2:] == ("--placement", "mine.yaml")
    first = with_rules((r"blk\.[0-3]\..*_exps", "gpu"), ("_exps", "cpu"))
    assert first.gpu_parts[0].num_resident == 4 * 128
    (entry,) = [entry for entry in first.ledger if entry.place == "gpu 0" and entry.what == "routed experts"]
    assert "those of 4 layers by rules, none of 44 layers by rules" in entry.formula
    assert first.decode.tok_s is not None
    assert none.decode.tok_s is not None
    assert first.decode.tok_s > none.decode.tok_s
    with pytest.raises(ConfigError, match="rules put 6144 experts on the accelerator, but there is room for"):
        with_rules(("_exps", "gpu"))
    with pytest.raises(ConfigError, match="match 'nothing' finds no tensor of this model"):
        with_rules(("nothing", "gpu"))


def test_rules_without_a_card_are_said_to_say_nothing(tmp_path: Path) -> None:
    made = plan(captured_facts("desktop", tmp_path), **rules(("_exps", "cpu")))
    assert "placement rules say nothing without a card" in made.notes
    with pytest.raises(WishError, match="placement_rules are for a card"):
        Wishes(devices="cpu", placement="mine.yaml")


def test_a_card_too_small_for_its_driver_gets_nothing(tmp_path: Path) -> None:
    wishes = Wishes(context=4096, max_gpu_bytes=GIB // 2)
    made = make_plan(captured_facts("desktop", tmp_path), qwen3_30b(), wishes, WITH_GPU)
    assert made.gpu_parts == ()
    assert made.bytes_of("gpu 0") == 0


def test_a_card_that_shares_the_machines_memory_is_no_gain(tmp_path: Path) -> None:
    made = make_plan(captured_facts("unified", tmp_path), qwen3_30b(), Wishes(devices="gpu"), WITH_GPU)
    assert made.gpu_parts == ()
    assert any("memory is the machine's" in rejected.why for rejected in made.rejected)


def test_decode_is_the_bytes_of_a_token_by_the_bandwidth(tmp_path: Path) -> None:
    """8 of 128 experts, attention and head: about 1.9 GB in panels of Q4_K; 96 GB/s, of which 0.37 to 0.86 come."""
    made = plan(captured_facts("desktop", tmp_path))
    assert made.decode.limiting_lane == "memory"
    assert made.decode.min_tok_s is not None
    assert made.decode.max_tok_s is not None
    assert 0.6 * 0.55 * 96 / 2.1 < made.decode.min_tok_s < made.decode.max_tok_s < 0.9 * 0.9 * 96 / 1.7
    assert "looked up" in made.decode.basis


def test_measured_bandwidth_narrows_the_interval(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    known = replace(facts, memory=replace(facts.memory, read_bytes_s=measured(75e9, "test")))
    guessed, better = plan(facts).decode, plan(known).decode
    assert better.max_tok_s is not None
    assert better.min_tok_s is not None
    assert guessed.max_tok_s is not None
    assert guessed.min_tok_s is not None
    assert better.max_tok_s / better.min_tok_s < guessed.max_tok_s / guessed.min_tok_s
    assert "measured" in better.basis


def test_speeds_are_unknown_where_the_bandwidth_is_and_never_guessed(tmp_path: Path) -> None:
    made = plan(captured_facts("snc", tmp_path))
    assert made.decode.min_tok_s is made.prefill.max_tok_s is None
    assert "not known" in made.decode.basis


def test_more_context_is_slower_and_more_experts_on_a_card_are_faster(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    made = plan(facts)
    assert (made.decode_deep.max_tok_s or 0) < (made.decode.max_tok_s or 0)
    with_card = make_plan(facts, qwen3_30b(), Wishes(context=8192), WITH_GPU)
    assert (with_card.decode.max_tok_s or 0) > (made.decode.max_tok_s or 0)
    assert any(lane.name == "PCIe 0" for lane in with_card.decode.lanes)


def test_prefill_is_limited_by_arithmetic(tmp_path: Path) -> None:
    made = plan(captured_facts("desktop", tmp_path))
    assert made.prefill.limiting_lane == "experts"
    assert 0 < (made.prefill.min_tok_s or 0) < (made.prefill.max_tok_s or 0)


def test_a_wish_that_contradicts_the_model_is_refused(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    with pytest.raises(ConfigError, match="trained for 40960"):
        plan(facts, context=50000)
    odd = replace(qwen3_30b(), layers=(grouped_query(4, 80, 80),))
    with pytest.raises(ConfigError, match="q8_0"):
        plan(facts, odd, cache_type="q8_0")


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"context": 0}, "context must be at least 1"),
        ({"num_sequences": 0}, "num_sequences must be at least 1"),
        ({"compute": "int4"}, "compute must be one of"),
        ({"devices": "tpu"}, "devices must be one of"),
        ({"devices": "cpu", "max_gpu_bytes": 3}, "is for a card"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(wishes: dict[str, object], message: str) -> None:
    with pytest.raises(WishError, match=message):
        Wishes(**wishes)  # type: ignore[arg-type]


def test_the_most_exact_quantization_that_fits_is_chosen_and_the_others_are_told_why(tmp_path: Path) -> None:
    """30.5 B weights in 54 GiB: 8.5 bits take 30 GiB and fit."""
    made = choose_plan(captured_facts("container", tmp_path), qwen3_30b(), Wishes(context=8192), CPU_ONLY)
    assert made.quantization == "Q8_0"
    small = choose_plan(captured_facts("wsl2", tmp_path / "small"), qwen3_30b(), Wishes(context=8192), CPU_ONLY)
    assert small.verdict.kind == "fits"
    assert BITS_PER_WEIGHT[small.quantization] < 4
    why = {rejected.what: rejected.why for rejected in small.rejected}
    assert "does not fit" in why["Q8_0"]
    assert "less exact" in why["IQ1_S"]


def test_no_file_is_named_that_nobody_makes(tmp_path: Path) -> None:
    """A bit a weight at most."""
    made = make_plan(captured_facts("container", tmp_path), qwen3_30b(), Wishes(max_memory_bytes=4 * GIB), CPU_ONLY)
    assert made.verdict.change is not None
    assert made.verdict.change.startswith("--max-memory ")


def test_memory_that_holds_no_smaller_file_either_is_told_how_much_would_do(tmp_path: Path) -> None:
    facts = captured_facts("container", tmp_path)
    made = make_plan(facts, qwen3_30b(), Wishes(max_memory_bytes=GIB // 10), CPU_ONLY)
    assert "--max-memory gives 0.1 GiB" in made.verdict.message
    assert made.verdict.change is not None
    option, gib = made.verdict.change.split()
    assert option == "--max-memory"
    enough = Wishes(max_memory_bytes=round(float(gib) * GIB), context=made.context)
    assert make_plan(facts, qwen3_30b(), enough, CPU_ONLY).verdict.kind == "fits"


def test_another_quantization_is_compared_by_size_and_speed(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    made = plan(facts)
    answer = why_not(facts, qwen3_30b(), Wishes(), CPU_ONLY, made, "q8_0")
    assert answer.what == "Q8_0"
    assert "times the speed" in answer.why
    with pytest.raises(WishError, match="known are"):
        why_not(facts, qwen3_30b(), Wishes(), CPU_ONLY, made, "Q9")


def test_an_architecture_that_this_build_does_not_run_is_said(tmp_path: Path) -> None:
    other = replace(qwen3_30b(), architecture="qwen3next")
    assert any("does not run" in note for note in plan(captured_facts("desktop", tmp_path), other).notes)


def with_peaks(
    facts: MachineFacts, isa: str, shares: tuple[KernelShare, ...] = (), tiles: float = 2e12
) -> MachineFacts:
    cpu = replace(
        facts.cpu,
        isa=replace(facts.cpu.isa, value=isa),
        peak_ops_s=measured(2e12, "test"),
        kernel_shares=measured(shares, "test"),
        amx=replace(facts.cpu.amx, measured=measured(tiles, "test")),
    )
    return replace(facts, cpu=cpu, memory=replace(facts.memory, read_bytes_s=measured(5e10, "test")))


def test_prefill_is_planned_faster_where_the_processor_has_tiles(tmp_path: Path) -> None:
    facts = with_peaks(captured_facts("two-sockets", tmp_path), "amx")
    mixed, vectors = plan(facts), plan(facts, compute="int8")
    assert (mixed.compute, vectors.compute) == ("mixed", "int8")
    assert (mixed.prefill.tok_s or 0) > 1.3 * (vectors.prefill.tok_s or 1)
    assert mixed.decode == vectors.decode
    assert {a.what for a, b in zip(mixed.ledger, vectors.ledger, strict=True) if a != b} == {"compute buffers"}
    assert vectors.command[-2:] == ("--compute", "int8")


def test_kernels_on_tiles_follow_both_peaks(tmp_path: Path) -> None:
    """Where tiles do four times as much, and vectors unpack for them as before, the kernels do twice as much."""
    shares = tuple(KernelShare(kind, "Q4_K", 0.5, on_tiles=True) for kind in ("experts", "matrix"))
    machine = captured_facts("two-sockets", tmp_path)
    before, after = (plan(with_peaks(machine, "amx", shares, tiles)).prefill for tiles in (2e12, 8e12))
    lanes = [{lane.name: lane.min_seconds for lane in prediction.lanes} for prediction in (before, after)]
    assert lanes[1]["experts"] == pytest.approx(lanes[0]["experts"] / 2)
    assert lanes[1]["rows"] == lanes[0]["rows"]


def test_tiles_are_as_fast_as_they_were_measured_and_slower_with_few_rows_of_an_expert(tmp_path: Path) -> None:
    """Shares of 2 on tiles were of 128 rows an expert; of twice as many experts a chunk has 16."""
    shares = tuple(KernelShare(kind, "Q4_K", 2.0, on_tiles=True) for kind in ("experts", "matrix"))
    facts = with_peaks(captured_facts("two-sockets", tmp_path), "amx", shares)
    lanes = {lane.name: lane for lane in plan(facts, replace(qwen3_30b(), num_experts=256)).prefill.lanes}
    operations = {
        "experts": 2 * 512 * 48 * 8 * 3 * 2048 * 768 / 2,
        "matrix": 2 * 512 * 48 * 2048 * (2 * 4096 + 2 * 512),
    }
    matrix = operations["matrix"] / 2e12 / (2.0 * MEASURED_SHARE[1])
    experts = operations["experts"] / 2e12 / (2.0 * MEASURED_SHARE[1]) * 2**0.7
    assert lanes["matrix"].min_seconds == pytest.approx(matrix, rel=0.05)  # the router is in another type
    assert lanes["experts"].min_seconds == pytest.approx(experts)


def test_without_tiles_mixed_is_int8_and_the_plan_says_so(tmp_path: Path) -> None:
    facts = with_peaks(captured_facts("desktop", tmp_path), "avx512")
    made = plan(facts, compute="mixed")
    assert (made.compute, made.prefill) == ("int8", plan(facts).prefill)
    assert any("no tile registers" in note for note in made.notes)


def test_float32_is_planned_slow_as_every_weight_is_unpacked_for_each_token(tmp_path: Path) -> None:
    facts = with_peaks(captured_facts("two-sockets", tmp_path), "amx")
    fast, exact = plan(facts), plan(facts, compute="float32")
    assert exact.decode.limiting_lane == "unpacking"
    assert (exact.decode.tok_s or 0) < (fast.decode.tok_s or 0) / 2
    assert (exact.prefill.tok_s or 0) < (fast.prefill.tok_s or 0) / 2
    in_floats = plan(facts, qwen3_30b(2, WeightType.F16), compute="float32")
    assert all(lane.name != "unpacking" or lane.max_seconds == 0 for lane in in_floats.decode.lanes)


@pytest.mark.parametrize(
    ("isa", "ways"), [("amx", ["int8", "mixed", "bf16", "float32"]), ("avx2", ["int8", "float32"])]
)
def test_the_ways_to_compute_are_those_that_the_machine_has(tmp_path: Path, isa: str, ways: list[str]) -> None:
    facts = with_peaks(captured_facts("two-sockets", tmp_path), isa)
    found = ways_to_compute(lambda wishes: make_plan(facts, qwen3_30b(), wishes, CPU_ONLY), Wishes(context=8192))
    assert [way.compute for way in found] == ways
    by_name = {way.compute: way for way in found}
    packed = plan(facts, context=8192)
    decided = by_name[packed.compute]
    assert decided.memory_bytes == packed.bytes_of(MEMORY)
    assert decided.prefill_tok_s == packed.prefill.tok_s
    assert by_name["int8"].decode_tok_s == packed.decode.tok_s
    assert by_name["float32"].memory_bytes != packed.bytes_of(MEMORY)
    lines = ways_text(found).splitlines()
    assert len(lines) == len(ways) + 1
    assert "tok/s" in lines[1]


def test_more_exact_weights_that_leave_hardly_any_context_are_not_chosen(tmp_path: Path) -> None:
    facts, model = captured_facts("desktop", tmp_path), qwen3_30b()
    tight = make_plan(facts, requantized(model, "Q8_0"), Wishes(), CPU_ONLY)
    cap = tight.bytes_of(MEMORY) - tight.bytes_of(MEMORY) // 100
    caps = (int(cap * share) for share in (0.9, 0.92, 0.94, 0.96, 0.98, 1.0))
    plans = [choose_plan(facts, model, Wishes(max_memory_bytes=cap), CPU_ONLY) for cap in caps]
    assert all(made.verdict.kind == "fits" and made.context >= USEFUL_CONTEXT for made in plans)


@pytest.mark.parametrize(
    ("contexts", "trained", "chosen"),
    [
        ((960, 9000, 20000), 40960, 1),
        ((960, 4096, 6000), 40960, 1),
        ((960, 1000, 1200), 40960, 0),
        ((2048, 4096, 4096), 4096, 1),
        ((512, 512, 512), 512, 0),
    ],
)
def test_the_first_with_a_useful_context_is_the_best(
    contexts: tuple[int, ...], trained: int, chosen: int, tmp_path: Path
) -> None:
    made = plan(captured_facts("desktop", tmp_path))
    plans = [replace(made, context=context) for context in contexts]
    assert best_of(plans, trained) is plans[chosen]


def test_a_larger_file_is_told_to_leave_less_context(tmp_path: Path) -> None:
    facts, model = captured_facts("desktop", tmp_path), qwen3_30b()
    made = make_plan(facts, requantized(model, "Q4_K_M"), Wishes(context=16384), CPU_ONLY)
    assert "a context of 8,192 tokens instead of 16,384" in compared(replace(made, context=8192), made)
    assert "context" not in compared(made, replace(made, context=8192))
