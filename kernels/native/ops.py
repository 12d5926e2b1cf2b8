"""All ops in C, with the signatures and the meaning of kernels/baseline."""

from collections.abc import Callable, Sequence
from typing import Any

from kernels.native.attention import PageReaders
from kernels.native.mhc import HyperConnections
from kernels.native.moe import Experts
from kernels.native.norms import Norms
from kernels.native.output import Products
from kernels.native.state import PageWriters


class NativeOps(Norms, HyperConnections, Products, PageWriters, PageReaders, Experts):
    """One method an op."""

    def functions(self, names: Sequence[str]) -> dict[str, Callable[..., Any]]:
        """The ops of these names, and the writer of index keys."""
        found = {name: getattr(self, name) for name in names}
        return {**found, "index_keys.store": self.store_keys}
