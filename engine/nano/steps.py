"""One training step, replayed as a CUDA graph once its shape and kind were seen.

A step is a few thousand small kernels; launched one by one they cost more time than they run.
"""
# mypy: disable-error-code="no-untyped-call"
# torch leaves Function.apply, unflatten, backward and Stream without types

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.nano.mixture import PAD_ID
from engine.nano.mode import Mode
from engine.nano.optimizer import Optimizer
from engine.nano.schedule import NARROW_WIDTHS
from engine.nano.twin import Twin
from engine.nano.workers import Batch

_TAUGHT_ROWS = 192


@dataclass(slots=True)
class _Buffers:
    ids: Tensor
    weights: Tensor


class Steps:
    """Runs training steps. After `run`, `answer_loss` and `index_loss` hold that step's values."""

    def __init__(self, twin: Twin, optimizer: Optimizer, *, graphs: bool) -> None:
        self._twin = twin
        self._optimizer = optimizer
        device = twin.weights.device
        self.balance = torch.zeros((), device=device)
        self.width = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.answer_loss = torch.zeros((), device=device)
        self.index_loss = torch.zeros((), device=device)
        self._graphs_on = graphs
        self._buffers: dict[tuple[int, ...], _Buffers] = {}
        self._seen: set[tuple[int, int, str]] = set()
        self._graphs: dict[tuple[int, int, str], torch.cuda.CUDAGraph] = {}
        self._pool: Any = None  # torch names the type of a pool's handle in a private module
        # One stream for all of it: a graph must not depend on work of another stream.
        self._stream = torch.cuda.Stream() if device.type == "cuda" else None
        if self._stream is not None:
            torch.cuda.synchronize()

    def run(self, batch: Batch, kind: str, *, rate: float, balance: float, width: int) -> Tensor:
        """Train on one batch: `kind` is one of `Schedule.kind`; returns the loss on answers.

        Reading the returned value needs `synchronize` first.
        """
        if self._stream is None:
            self._run(batch, kind, rate, balance, width)
            return self.answer_loss.clone()
        with torch.cuda.stream(self._stream):
            self._run(batch, kind, rate, balance, width)
            return self.answer_loss.clone()

    def synchronize(self) -> None:
        """Wait for the steps that were launched."""
        if self._stream is not None:
            self._stream.synchronize()

    def _run(self, batch: Batch, kind: str, rate: float, balance: float, width: int) -> None:
        ids, weights = batch
        buffers = self._load(ids, weights)
        self._optimizer.factor.fill_(rate)
        self.balance.fill_(balance)
        self.width.fill_(width)
        key = (*weights.shape, kind)
        if not self._graphs_on or key not in self._seen:
            self._seen.add(key)
            self._compute(buffers, kind)
            return
        if key not in self._graphs:
            self._graphs[key] = self._capture(buffers, kind)
        self._graphs[key].replay()

    def _load(self, ids: np.ndarray, weights: np.ndarray) -> _Buffers:
        shape = ids.shape
        device = self._twin.weights.device
        if shape not in self._buffers:
            self._buffers[shape] = _Buffers(
                torch.zeros(shape, dtype=torch.int64, device=device),
                torch.zeros(weights.shape, device=device),
            )
        buffers = self._buffers[shape]
        buffers.ids.copy_(torch.from_numpy(ids).to(device))
        buffers.weights.copy_(torch.from_numpy(weights).to(device))
        return buffers

    def _capture(self, buffers: _Buffers, kind: str) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._compute(buffers, kind)
        self._pool = graph.pool()
        return graph

    def _compute(self, buffers: _Buffers, kind: str) -> None:
        inputs, targets = buffers.ids[:, :-1].contiguous(), buffers.ids[:, 1:]
        weights = buffers.weights / 255 * (targets != PAD_ID)
        mode = Mode(balance=self.balance)
        if kind == "narrow":
            mode.topk, mode.topk_live = max(NARROW_WIDTHS), self.width
        if kind == "index":
            mode.train_index, mode.index_keys = True, "mixed"
            answers_first = torch.rand(weights.shape, device=weights.device) + (weights > 0.9)
            mode.rows = answers_first.topk(min(weights.shape[1], _TAUGHT_ROWS), -1).indices
        hidden, aux = self._twin.hidden(inputs, mode)
        logits = self._twin.logits(hidden).flatten(0, 1).float()
        entropy = functional.cross_entropy(logits, targets.flatten(), reduction="none")
        loss = (entropy * weights.flatten()).sum() / weights.sum().clamp_min(1.0)
        (loss + aux.index_loss).backward()
        self._optimizer.step()
        for parameter in self._twin.weights.parameters():
            parameter.grad = None
        with torch.no_grad():
            answers = (weights > 0.9).flatten()
            self.answer_loss.copy_((entropy * answers).sum() / answers.sum().clamp_min(1))
            self.loss.copy_(loss)
            self.index_loss.copy_(aux.index_loss)
