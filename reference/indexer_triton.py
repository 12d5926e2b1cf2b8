"""Truth for the patch `indexer_triton`: scores of the visible entries, and the selection."""

from reference.indexer import index_scores, is_tied, select, visible_entries

__all__ = ["index_scores", "is_tied", "select", "visible_entries"]
