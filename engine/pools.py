"""Paged storage for everything that a sequence needs, and the list of free pages.

A page owns all state of its `page_size` tokens in every layer: window rows, compressed entries,
index keys, and the compressors' raw rings. So handing over, freeing or sharing a page needs no
further bookkeeping, and a prefix hit is a list of page numbers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.architecture import CSA, SLIDING, Architecture
from engine.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core import Engine


class OutOfPages(EngineError):
    """More pages were asked for than are free; nothing was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPools:
    """State of one layer; P pages of `page` tokens, rate m. None where the kind has no such state.

    `ring` holds raw compressor inputs, kv channels then gate channels, of the last positions of a
    page: row = position % (2m) in a CSA layer (the previous window lies beside the open one), and
    position % m in an HCA layer.
    """

    window: Tensor
    """fp32 [P, page, D]."""
    entries: Tensor | None = None
    """fp32 [P, page // m, D]; entry w lies in the page of token w*m."""
    ring: Tensor | None = None
    """fp32 CSA [P, 2m, 4D], HCA [P, m, 2D]."""
    index_keys: Any = None
    """Storage of `ops.index_keys`, [P, page // m, D_i] in that patch's format; CSA only."""
    index_ring: Tensor | None = None
    """fp32 [P, 2m, 4*D_i]; CSA only."""


class Pools:
    """The pools of all layers and the free list. Not thread-safe: the scheduler's lock guards it.

    The page freed last is handed out first: it is still in the processor's caches, and memory that
    was never needed is never touched.
    """

    def __init__(
        self,
        engine: "Engine",
        architecture: Architecture,
        *,
        page_size: int,
        num_pages: int,
        device: torch.device,
    ) -> None:
        """Allocate.

        Raises:
            ConfigError: the page size is no multiple of every compression rate (twice the rate for
                overlapping compressors), so that windows would straddle pages.
        """
        check_page_size(architecture, page_size)
        self.page_size = page_size
        self.num_pages = num_pages
        self.layers = tuple(
            _layer_pools(
                engine, architecture, layer, page_size=page_size, num_pages=num_pages, device=device
            )
            for layer in range(architecture.num_layers)
        )
        self._free = list(reversed(range(num_pages)))

    @property
    def num_free_pages(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def allocate(self, num_pages: int) -> list[int]:
        """Take pages; their content is whatever the last owner left.

        Raises:
            OutOfPages: fewer are free.
        """
        if num_pages > len(self._free):
            raise OutOfPages(f"{num_pages} pages wanted, {len(self._free)} are free.")
        return [self._free.pop() for _ in range(num_pages)]

    def free(self, pages: "Iterable[int]") -> None:
        """Give pages back. The caller must not read them any more."""
        self._free.extend(pages)

    def free_pages(self) -> list[int]:
        """Every free page, the next one last."""
        return list(self._free)

    def page_tensors(self) -> list[Tensor]:
        """All state, each tensor with the page as its first dimension: what a page owns."""
        state: list[Tensor | None] = []
        for layer in self.layers:
            state += [layer.window, layer.entries, layer.ring, layer.index_ring]
            state += [] if layer.index_keys is None else layer.index_keys.tensors()
        return [tensor for tensor in state if tensor is not None]

    def check_integrity(self) -> None:
        """Raise AssertionError when the free list holds a page twice or one that does not exist."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise AssertionError("pools: a page is free twice")
        if not free <= set(range(self.num_pages)):
            raise AssertionError("pools: a free page does not exist")


def check_page_size(architecture: Architecture, page_size: int) -> None:
    """Refuse a page that windows would straddle."""
    for layer, kind in enumerate(architecture.layer_kinds):
        rate = architecture.rate(layer)
        if kind == SLIDING:
            continue
        unit = 2 * rate if kind == CSA else rate
        if page_size % unit:
            raise ConfigError(
                f"--page-size is {page_size}, but must be a multiple of {unit}: layer {layer} "
                f"compresses {rate} tokens to one entry."
            )


def _layer_pools(
    engine: "Engine",
    architecture: Architecture,
    layer: int,
    *,
    page_size: int,
    num_pages: int,
    device: torch.device,
) -> LayerPools:
    kind, rate = architecture.layer_kinds[layer], architecture.rate(layer)
    width, index_width = architecture.head_dim, architecture.index_head_dim

    def zeros(rows: int, columns: int) -> Tensor:
        if device.type != "cpu":
            return torch.zeros(num_pages, rows, columns, dtype=torch.float32, device=device)
        # torch writes its zeros, numpy asks the system for them: pages never used cost nothing.
        return torch.from_numpy(np.zeros((num_pages, rows, columns), dtype=np.float32))

    window = zeros(page_size, width)
    if kind == SLIDING:
        return LayerPools(window=window)
    slots = page_size // rate
    if kind != CSA:
        return LayerPools(window=window, entries=zeros(slots, width), ring=zeros(rate, 2 * width))
    return LayerPools(
        window=window,
        entries=zeros(slots, width),
        ring=zeros(2 * rate, 4 * width),
        index_keys=engine.ops.index_keys.allocate(num_pages, slots, index_width, device),
        index_ring=zeros(2 * rate, 4 * index_width),
    )
