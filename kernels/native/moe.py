"""Mixture of experts in C; meaning: kernels/baseline/moe.py."""

import torch
from torch import Tensor, empty

from kernels.baseline.moe import check_choice, check_experts, check_route, check_shared
from kernels.batch import PagedBatch
from kernels.native.core import NativeCore, address, rows, succeed


class Experts(NativeCore):
    """See kernels/baseline/moe.py."""

    def route(
        self,
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
        x, data, stride = rows("x", x)
        tokens, (count, hidden) = x.shape[0], gate_w.shape
        ids, weights = empty((tokens, topk), dtype=torch.int32), empty((tokens, topk))
        table = None if tid2eid is None else self._weights.int32("tid2eid", tid2eid)
        code = self._c.k_route(
            data, stride, self._weights.matrices("gate_w", gate_w), count, hidden,
            None if bias is None else address("bias", bias), table,
            0 if tid2eid is None else tid2eid.shape[0], topk, scaling, self._batch(batch),
            ids.data_ptr(), weights.data_ptr(),
        )  # fmt: skip
        if code == 2:
            check_choice(bias, tid2eid, experts=count, batch=batch)  # says what C has seen
        succeed(code, "route")
        return ids, weights

    def experts(
        self,
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
        x, data, stride = rows("x", x)
        tokens, hidden = x.shape
        count, double, _ = gate_up.shape
        out = empty((tokens, hidden))
        code = self._c.k_experts(
            data, stride, tokens, hidden, ids.contiguous().data_ptr(), address("weights", weights),
            ids.shape[1], self._weights.matrices("gate_up", gate_up, 2 * count),
            self._weights.matrices("down", down, count), count, double // 2, limit or 0.0,
            out.data_ptr(),
        )  # fmt: skip
        succeed(code, "experts")
        return out

    def shared_expert(
        self, x: Tensor, gate_w: Tensor, up_w: Tensor, down_w: Tensor, *, limit: float | None
    ) -> Tensor:
        """See kernels/baseline/moe.py."""
        check_shared(x, gate_w, up_w, down_w, limit=limit)
        x, data, stride = rows("x", x)
        tokens, hidden = x.shape
        out = empty((tokens, hidden))
        pack = self._weights.matrices
        code = self._c.k_shared_expert(
            data, stride, tokens, hidden, pack("gate_w", gate_w), pack("up_w", up_w),
            pack("down_w", down_w), gate_w.shape[0], limit or 0.0, out.data_ptr(),
        )  # fmt: skip
        succeed(code, "shared_expert")
        return out
