"""A model that is a shape alone, and plans of it: large ones cost nothing."""

from __future__ import annotations

from ktdesk_engine.quants.formats import BLOCKS, WeightType
from ktdesk_wizard.plan.cache import grouped_query
from ktdesk_wizard.plan.model import PlannedModel, PlannedTensor
from ktdesk_wizard.plan.plan import Plan
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.machine_facts import MachineFacts

CPU_ONLY = EngineAbilities(frozenset({"qwen3moe"}), has_gpu=False)
WITH_GPU = EngineAbilities(frozenset({"qwen3moe"}), has_gpu=True)


def tensor(name: str, *shape: int, kind: WeightType = WeightType.Q4_K) -> PlannedTensor:
    values = 1
    for size in shape:
        values *= size
    block = BLOCKS[kind]
    return PlannedTensor(name, shape, kind.name, values // block.values * block.bytes, kind)


def qwen3_30b(num_layers: int = 48, kind: WeightType = WeightType.Q4_K) -> PlannedModel:
    """The shape of Qwen3-30B-A3B: 30.5 B weights, of which a token uses 3.3 B."""
    tensors = [tensor("token_embd.weight", 2048, 151936, kind=kind), tensor("output.weight", 2048, 151936, kind=kind)]
    tensors.append(tensor("output_norm.weight", 2048, kind=WeightType.F32))
    for i in range(num_layers):
        tensors += [
            tensor(f"blk.{i}.attn_q.weight", 2048, 4096, kind=kind),
            tensor(f"blk.{i}.attn_k.weight", 2048, 512, kind=kind),
            tensor(f"blk.{i}.attn_v.weight", 2048, 512, kind=kind),
            tensor(f"blk.{i}.attn_output.weight", 4096, 2048, kind=kind),
            tensor(f"blk.{i}.ffn_gate_inp.weight", 2048, 128, kind=WeightType.F32),
            *(tensor(f"blk.{i}.ffn_{name}_exps.weight", 2048, 768, 128, kind=kind) for name in ("gate", "up")),
            tensor(f"blk.{i}.ffn_down_exps.weight", 768, 2048, 128, kind=kind),
        ]
    layers = (grouped_query(4, 128, 128),) * num_layers
    return PlannedModel(
        *("Qwen3 30B A3B", "qwen3.gguf", "qwen3moe", kind.name, 40960, 2048, 151936, 128, 8, 768, 32, layers),
        tensors=tuple(tensors),
        left_out_bytes=0,
        is_estimate=False,
    )


def plan(facts: MachineFacts, model: PlannedModel | None = None, **wishes: object) -> Plan:
    return make_plan(facts, model or qwen3_30b(), Wishes(**wishes), CPU_ONLY)  # type: ignore[arg-type]
