"""Truth for the patch `index_topk`: the selection, for any number of entries."""

from reference.indexer import is_tied, select, visible_entries

__all__ = ["is_tied", "select", "visible_entries"]
