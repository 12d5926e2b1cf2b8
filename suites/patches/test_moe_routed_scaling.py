"""Routing with the scaling inside the top-k: who is chosen, and with what weights.

Claim: experts are the best by biased score outside ties, each comes with its own weight,
  s / sum(s) * scaling, once, for learned and for hash routing, also after 61 layers; the
  logits of a checkpoint stay within .05 nats.
Why it breaks in practice: the factor is applied twice or not at all, the bias leaks into the
  weights, or softplus underflows and a token loses its experts.
A failure means: tokens go to other experts, or come back scaled wrongly.
Cost: about 5 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op, Selects, Stack
from kernels import Ops
from kernels.baseline import moe as plain
from reference import routing as reference
from suites.patches import flash_shapes
from suites.patches.binding import bound, bound_without, on_cpu
from suites.patches.declared import declared
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import routing_cases
from suites.patches.paged import token_batch
from suites.patches.routed_pairs import pair_checks
from suites.patches.synthetic import head, normal, rms, structured

TOKENS, HIDDEN, EXPERTS, TOPK, VOCABULARY, SCALING = 24, 72, 37, 6, 11, 2.5
KEEP = ("gate", "bias")


def learned(route: Op) -> Op:
    """A bound `route` as a function of plain tensors."""
    return lambda x, gate, bias, topk, scaling: route(
        x, gate, bias, None, topk=topk, scaling=scaling, batch=token_batch(x[:, 0].int())
    )


def hashed(route: Op) -> Op:
    """The same for layers that route by token id."""
    return lambda x, gate, token_ids, tid2eid, scaling: route(
        x, gate, None, tid2eid, topk=tid2eid.shape[1], scaling=scaling, batch=token_batch(token_ids)
    )


def true_scores(x: Tensor, gate: Tensor, bias: Tensor, **_: object) -> Tensor:
    """What the choice goes by."""
    scores: Tensor = reference.router_scores(x, gate) + bias
    return scores


def table_of(generator: torch.Generator, experts: int, topk: int) -> dict[str, Tensor]:
    """Token ids, and for each different experts in any order."""
    table = normal(generator, VOCABULARY, experts).argsort(1)[:, :topk].contiguous()
    return {
        "token_ids": torch.randint(VOCABULARY, (TOKENS,), generator=generator),
        "tid2eid": table,
    }


def gate_of(generator: torch.Generator, experts: int, hidden: int) -> Tensor:
    """Router weights, two experts of them equal."""
    gate: Tensor = normal(generator, experts, hidden) * hidden**-0.5
    gate[experts // 2] = gate[0]
    return gate


def counted(ops: Ops) -> int:
    """Runs of the patch's own code."""
    count: int = ops.calls["patch.moe_routed_scaling"]
    return count


def examined(
    examination: Examination, cases: list[Case], *, dtype: torch.dtype, ops: Ops, **more: Any
) -> None:
    """Learned routing: who is chosen, with what weights, and each with its own."""
    examination.patch(
        learned(ops.route),
        learned(plain.route),
        reference.route_learned,
        cases,
        dtype=dtype,
        keep=KEEP,
        selects=Selects(scores=true_scores),
        **more,
    )
    pairs = pair_checks(
        learned(ops.route),
        learned(plain.route),
        cases,
        dtype=dtype,
        keep=KEEP,
        device=examination.device,
    )
    examination.take(pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_learned_routing(examination: Examination, dtype: torch.dtype) -> None:
    """Noise, outliers, sparse and equal rows, all sizes; equal experts; NaN and Inf."""
    ops, generator = bound(examination), examination.generator()
    gate, bias = gate_of(generator, EXPERTS, HIDDEN), normal(generator, EXPERTS) * 0.1
    bias[EXPERTS // 2] = bias[0]
    fixed = {"gate": gate, "bias": bias, "topk": TOPK, "scaling": SCALING}
    examined(
        examination,
        [Case(name, {"x": x, **fixed}) for name, x in structured(generator, TOKENS, HIDDEN)],
        dtype=dtype,
        ops=ops,
        row_inputs=("x",),
        special=("x", "gate"),
        calls=lambda: counted(ops),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hash_routing(examination: Examination, dtype: torch.dtype) -> None:
    """The table names the experts and their order, the gate their weights."""
    ops, generator = bound(examination), examination.generator()
    fixed = {"gate": gate_of(generator, EXPERTS, HIDDEN), "scaling": SCALING}
    fixed |= table_of(generator, EXPERTS, TOPK)
    examination.patch(
        hashed(ops.route),
        hashed(plain.route),
        reference.route_hashed,
        [Case(name, {"x": x, **fixed}) for name, x in structured(generator, TOKENS, HIDDEN)],
        dtype=dtype,
        keep=("gate",),
        row_inputs=("x", "token_ids"),
        special=("x", "gate"),
        calls=lambda: counted(ops),
    )


def test_shapes_of_the_large_model(examination: Examination) -> None:
    """Six of 256 experts over 4,096 channels, learned and by token id."""
    ops, generator = bound(examination), examination.generator()
    given_ = {**flash_shapes.router(generator, TOKENS), "scaling": flash_shapes.SCALING}
    bias = normal(generator, flash_shapes.EXPERTS) * 0.1
    one = Case("6 of 256 experts", {**given_, "bias": bias, "topk": flash_shapes.TOPK})
    examined(examination, [one], dtype=torch.bfloat16, ops=ops, calls=lambda: counted(ops))
    table = table_of(generator, flash_shapes.EXPERTS, flash_shapes.TOPK)
    examination.patch(
        hashed(ops.route),
        hashed(plain.route),
        reference.route_hashed,
        Case("6 of 256 experts by token id", {**given_, **table}),
        dtype=torch.bfloat16,
        keep=("gate",),
        calls=lambda: counted(ops),
    )


@given(
    tokens=st.integers(1, 20),
    experts=st.integers(1, 70),
    share=st.floats(0, 1),
    hidden=st.integers(1, 60),
    size=st.sampled_from([1.0, 30.0]),
)
def test_irregular_shapes(
    examination: Examination, tokens: int, experts: int, share: float, hidden: int, size: float
) -> None:
    """Any number of tokens, experts and choices; logits far from zero too."""
    generator = examination.generator()
    topk = 1 + int(share * (min(experts, 8) - 1))
    arguments = {
        "x": normal(generator, tokens, hidden) * size,
        "gate": normal(generator, experts, hidden) * hidden**-0.5,
        "bias": normal(generator, experts),
    }
    one = Case(f"{tokens} tokens, {topk} of {experts}", {**arguments, "topk": topk, "scaling": 1.5})
    ops = bound(examination)
    examined(examination, [one], dtype=torch.float32, ops=ops, must_differ=False)


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers of routed experts: near the format's maths, and no growth."""
    generator = examination.generator()
    tokens, hidden, experts = 32, 48, 12
    gates = [normal(generator, experts, hidden) * hidden**-0.5 for _ in range(61)]
    biases = [normal(generator, experts) * 0.1 for _ in range(61)]
    matrices = [normal(generator, experts, hidden, hidden) * hidden**-0.5 for _ in range(61)]

    def step(op: Op, x: Tensor, layer: int) -> Tensor:
        y = rms(x)
        gate, bias, w = (part[layer].to(x.device) for part in (gates, biases, matrices))
        ids, weights = op(x=y, gate=gate, bias=bias, topk=4, scaling=SCALING)
        outputs = torch.tanh(torch.einsum("th,edh->ted", y, w))
        chosen = outputs.gather(1, ids.long()[:, :, None].expand(-1, -1, hidden))
        return x + 0.1 * (weights[:, :, None] * chosen).sum(1)  # type: ignore[no-any-return]

    start = normal(generator, tokens, hidden)
    examination.compounding(
        learned(bound(examination).route),
        reference.route_learned,
        Stack(step=step, start=start, head=head(generator, 256, hidden)),
        declared=declared(reference.route_learned, learned(plain.route)),
    )


def test_whole_model(examination: Examination) -> None:
    """All routing of a checkpoint: KL at the logits."""
    route = bound(examination).route
    examination.whole_model(
        route_learned=on_cpu(examination, learned(route)),
        route_hashed=on_cpu(examination, hashed(route)),
    )


def test_harvested_routing(harvested: Examination, harvest: Harvest) -> None:
    """What the routers of a running engine saw, on their weights; its text at the logits."""
    ops, opening = bound(harvested), harvest.opening()
    by_score, by_id = (routing_cases(harvest, hashed=hash_) for hash_ in (False, True))
    run: dict[str, Any] = {"dtype": torch.float32, "calls": lambda: counted(ops)}
    if by_score:
        examined(harvested, by_score, ops=ops, **run)
    if by_id:
        harvested.patch(
            hashed(ops.route),
            hashed(plain.route),
            reference.route_hashed,
            by_id,
            keep=("gate",),
            **run,
        )
    harvested.whole_model(
        opening,
        route_learned=on_cpu(harvested, learned(ops.route)),
        route_hashed=on_cpu(harvested, hashed(ops.route)),
    )


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "route")
