"""Patch `moe_routed_scaling`: routed weights are scaled inside the top-k, once.

One pass a token over the router's logits: sqrt(softplus), bias, the best `topk` in order, and their
weights times scaling / sum, where the baseline divides first and scales after. Layers that route by
token id take the same pass with the ids given. The router's product itself stays fp32.

On CUDA this is a Triton kernel (kernels/gpu/moe_routed_scaling.py); on the CPU its arithmetic.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from kernels.baseline.moe import check_route
from kernels.batch import PagedBatch
from kernels.checks import check_float, check_no_nan, refuse
from kernels.patch import Installation, kernel_patch

TINY = 1e-20  # of the divisor: scores may all underflow to zero

# (logits [T, E], bias [E] or None, ids int64 [T, K] or None, topk, scaling) -> ids int32, weights
Choose = Callable[[Tensor, Tensor | None, Tensor | None, int, float], tuple[Tensor, Tensor]]


def choose(
    logits: Tensor, bias: Tensor | None, ids: Tensor | None, topk: int, scaling: float
) -> tuple[Tensor, Tensor]:
    """The kernel's arithmetic on the CPU: ids int32 [T, K] best first, weights fp32 [T, K].

    A NaN score ranks first, so that it comes out as NaN and not as a plausible choice.
    """
    scores = (logits.clamp(min=0) + torch.log1p(torch.exp(-logits.abs()))).sqrt()
    if ids is None:
        ranked = scores if bias is None else scores + bias
        ranked = ranked.nan_to_num(nan=float("inf"), posinf=float("inf"), neginf=float("-inf"))
        ids = ranked.sort(dim=-1, descending=True, stable=True).indices[:, :topk]
    chosen = scores.gather(1, ids)
    return ids.int(), chosen * (scaling / (chosen.sum(-1, keepdim=True) + TINY))


def route_with(choose_: Choose) -> Callable[..., tuple[Tensor, Tensor]]:
    """`route` of kernels/baseline/moe.py around one of the two forms of the kernel."""

    def route(
        x: Tensor,
        gate_w: Tensor,
        bias: Tensor | None,
        tid2eid: Tensor | None,
        *,
        topk: int,
        scaling: float,
        batch: PagedBatch,
    ) -> tuple[Tensor, Tensor]:
        """See kernels/baseline/moe.py."""
        check_route(x, gate_w, bias, tid2eid, topk=topk, scaling=scaling, batch=batch)
        if bias is not None:
            check_no_nan("bias", bias)
        check_float("x", x)
        check_float("gate_w", gate_w, like=x)
        logits = linear(x.float(), gate_w.float())
        ids = None
        if tid2eid is not None:
            tokens = batch.token_ids.long()
            if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(tid2eid):
                refuse("token_ids", f"up to {int(tokens.max())}", f"0..{len(tid2eid) - 1}")
            ids = tid2eid[tokens].long()
            if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < gate_w.shape[0]:
                refuse("tid2eid", f"expert {int(ids.max())}", f"0..{gate_w.shape[0] - 1}")
        return choose_(logits, None if bias is None else bias.float(), ids, topk, scaling)

    return route


def _install(into: Installation) -> None:
    if into.on_gpu:
        from kernels.gpu.moe_routed_scaling import choose as run
    else:
        run = choose

    def counted(*args: Any) -> tuple[Tensor, Tensor]:
        into.count()
        return run(*args)

    into.functions["route"] = route_with(counted)


PATCH = kernel_patch(
    "moe_routed_scaling",
    phase="both",
    summary="routed weights scaled inside the top-k, once",
    source="fused top-k of public serving stacks (hash and learned routing)",
    install=_install,
)
