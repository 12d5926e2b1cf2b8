"""Experts put together from parts that patches replace: products with weights, activation.

`_expert_product(x, weights, expert)` is x [N, K] times weights[expert] [M, K] transposed, [N, M].
`_swiglu(gate, up, limit, scale)` is the clamped activation times scale [N] (None: 1), [N, I].
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from kernels.baseline.moe import (
    check_experts,
    check_same_dtype,
    check_shared,
    expert_groups,
    swiglu,
)

Product = Callable[[Tensor, Tensor, int], Tensor]
Activation = Callable[[Tensor, Tensor, float | None, Tensor | None], Tensor]


def plain_product(x: Tensor, weights: Tensor, expert: int) -> Tensor:
    """The product in x's dtype."""
    return linear(x, weights[expert])


def expert_functions(
    product: Product | None, activation: Activation | None, shared: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """`experts` and `shared_expert` from the parts given; a part left out is the baseline's.

    With an activation of its own, the routing weight is multiplied in before the second product,
    as DeepSeek's code does; otherwise after it.
    """
    multiply = product or plain_product

    def experts(
        x: Tensor,
        ids: Tensor,
        weights: Tensor,
        gate_up: Tensor,
        down: Tensor,
        *,
        limit: float | None,
    ) -> Tensor:
        """See kernels/baseline/moe.py."""
        check_experts(x, ids, weights, gate_up, down, limit=limit)
        if product is None:
            check_same_dtype(x, gate_up=gate_up, down=down)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert, token, pick in expert_groups(ids, gate_up.shape[0]):
            gate, up = multiply(x[token], gate_up, expert).chunk(2, dim=-1)
            scale = weights.flatten()[pick]
            if activation is None:
                part = multiply(swiglu(gate, up, limit), down, expert).float() * scale[:, None]
            else:
                part = multiply(activation(gate, up, limit, scale), down, expert).float()
            out.index_add_(0, token, part)
        return out.to(x.dtype)

    if activation is None:
        return {"experts": experts, "shared_expert": shared}
    own: Activation = activation

    def shared_expert(
        x: Tensor, gate_w: Tensor, up_w: Tensor, down_w: Tensor, *, limit: float | None
    ) -> Tensor:
        """See kernels/baseline/moe.py."""
        check_shared(x, gate_w, up_w, down_w, limit=limit)
        check_same_dtype(x, gate_w=gate_w, up_w=up_w, down_w=down_w)
        hidden = own(linear(x, gate_w), linear(x, up_w), limit, None)
        return linear(hidden.to(x.dtype), down_w)

    return {"experts": experts, "shared_expert": shared_expert}
