"""Truth for the patch `splitk_decode`: attention of a decode token over window, entries, sink."""

from reference.attention import sparse_attention

__all__ = ["sparse_attention"]
