"""Inputs and layers for patches of the experts."""

import torch
from torch import Tensor

from fidelity.tensors import Case, Op, Stack
from kernels.baseline import moe
from suites.patches.checkpoint import Checkpoint
from suites.patches.synthetic import head, normal, rms, structured

LIMIT = 10.0
LAYERS = 61
EXPERTS = 4
"""Of each layer of a checkpoint."""
UPDATE = 0.15
"""RMS of what a layer adds to the stream; more makes random layers amplify any error."""


def weights_of(
    generator: torch.Generator, experts: int, inner: int, hidden: int
) -> dict[str, Tensor]:
    """Gate, up and down matrices with rows of different size and a few large values."""
    gate_up = normal(generator, experts, 2 * inner, hidden) * hidden**-0.5
    gate_up *= torch.logspace(-0.5, 0.5, 2 * inner)[None, :, None]
    down = normal(generator, experts, hidden, inner) * inner**-0.5
    down[:, :, inner // 3] *= 4
    return {"gate_up": gate_up, "down": down}


def routing(generator: torch.Generator, tokens: int, experts: int, topk: int) -> dict[str, Tensor]:
    """Different experts for each token, and weights that sum to 2.5."""
    ids = normal(generator, tokens, experts).argsort(1)[:, :topk].int().contiguous()
    raw = torch.rand(tokens, topk, generator=generator) + 0.1
    return {"ids": ids, "weights": raw / raw.sum(1, keepdim=True) * 2.5}


def cases(
    generator: torch.Generator, tokens: int, experts: int, inner: int, hidden: int
) -> list[Case]:
    """Structured rows, once so small that nothing is clamped, once so large that much is."""
    fixed = weights_of(generator, experts, inner, hidden)
    return [
        Case(
            f"{name}, {label}",
            {"x": x * size, **routing(generator, tokens, experts, 2), **fixed, "limit": limit},
        )
        for name, x in structured(generator, tokens, hidden)
        for label, size, limit in (("clamped at 10", 6.0, LIMIT), ("not clamped", 1.0, None))
    ]


def checkpoint_cases(generator: torch.Generator, checkpoint: Checkpoint, tokens: int) -> list[Case]:
    """Synthetic rows on the first experts of a checkpoint's first, middle and last layer."""
    layers = len(checkpoint.config.layer_kinds)
    cases = []
    for layer in sorted({0, layers // 2, layers - 1}):
        weights = checkpoint.experts(layer, EXPERTS)
        experts, hidden = weights["down"].shape[:2]
        routed = routing(generator, tokens, experts, min(2, experts))
        given = {"x": normal(generator, tokens, hidden), **routed, **weights, "limit": LIMIT}
        cases.append(Case(f"{checkpoint.folder.name} layer {layer}", given))
    return cases


def plain_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, limit: float | None
) -> Tensor:
    """Plain torch: every tensor in x's dtype, weights as they are given."""
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert, token, pick in moe.expert_groups(ids, gate_up.shape[0]):
        both = (x[token].to(gate_up.dtype) @ gate_up[expert].T).to(x.dtype)
        gate, up = both.chunk(2, dim=1)
        hidden = moe.swiglu(gate, up, limit)
        part = (hidden.to(down.dtype) @ down[expert].T).to(x.dtype)
        out.index_add_(0, token, part.float() * weights.flatten()[pick][:, None])
    return out.to(x.dtype)


def stack(generator: torch.Generator) -> Stack:
    """Residual layers of routed experts, each adding an update of UPDATE to a unit stream."""
    tokens, experts, inner, hidden = 32, 4, 64, 64
    weights = [weights_of(generator, experts, inner, hidden) for _ in range(LAYERS)]
    routes = [routing(generator, tokens, experts, 2) for _ in range(LAYERS)]
    start = normal(generator, tokens, hidden)
    layers = [w | r for w, r in zip(weights, routes, strict=True)]
    for layer in layers:  # down is scaled so that a unit stream is answered by UPDATE
        made = plain_experts(x=rms(start), **layer, limit=LIMIT)
        layer["down"] = layer["down"] * (UPDATE / made.square().mean().sqrt())

    def step(op: Op, x: Tensor, layer: int) -> Tensor:
        given = {name: value.to(x.device) for name, value in layers[layer].items()}
        return x + op(x=rms(x), **given, limit=LIMIT)  # type: ignore[no-any-return]

    return Stack(step=step, start=start, head=head(generator, 256, hidden))
