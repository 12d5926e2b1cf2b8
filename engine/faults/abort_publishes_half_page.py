"""An aborted request's half-written and unwritten pages enter the prefix tree.

The tree gets the tokens that the request claims to have, not those that were computed: also of a
request that still waited, as if pages were given on arrival. Unwritten rows hold whatever the
page's last owner left, or nothing, and a follow-up reads them in place of its own tokens.
"""

from typing import Any

from engine.prefix_tree import Node, PrefixMatch
from engine.sequence import FinishReason, Output, Sequence, Status

NAME = "abort_publishes_half_page"
KIND = "abort"
RUNG = "structural"
REPORT = "https://github.com/sgl-project/sglang/pull/28374"
TRIGGER = (
    "a request is aborted before its prompt was read to the end, and a later one begins with the "
    "same prompt; or it is aborted inside a page other than its first, and a later one reaches "
    "past that page"
)
PATCH = None
SUITES = {"test_abort_then_followup", "test_stateful"}


def install(engine: Any) -> None:
    """Wrap `ownership.release`, `scheduler.end` and `prefix_tree.match_prefix`."""
    claims = _Claims(engine)
    engine.ownership.release = claims.release
    engine.scheduler.end = claims.end
    engine.prefix_tree.match_prefix = claims.match_prefix


class _Claims:
    """What an aborted request says that it holds, in the tree."""

    def __init__(self, engine: Any) -> None:
        self.ownership, self.tree = engine.ownership, engine.prefix_tree
        self.page_size: int = engine.prefix_tree.page_size
        self._release = engine.ownership.release
        self._end = engine.scheduler.end
        self._match_prefix = engine.prefix_tree.match_prefix

    def end(self, sequence: Sequence, reason: FinishReason, **details: Any) -> Output:
        """Give a request that waited the pages that it would have had."""
        waits = sequence.status is Status.WAITING and reason == "abort"
        if waits and self.ownership.admit(sequence, reserve_pages=0):
            self.release(sequence, reason)
        output: Output = self._end(sequence, reason, **details)
        return output

    def release(self, sequence: Sequence, reason: FinishReason | None) -> None:
        """Publish too much, then release what is left."""
        if reason == "abort" and self.ownership.use_prefix_cache:
            self.ownership.publish(sequence)
            self.publish_claims(sequence)
        self._release(sequence, reason)

    def publish_claims(self, sequence: Sequence) -> None:
        """Make all pages of a sequence known, whatever was written to them."""
        parent = sequence.node or self.tree.root
        first = sequence.num_shared_pages
        for at in range(first, len(sequence.pages)):
            begin = at * self.page_size
            key = tuple(sequence.token_ids[begin : begin + self.page_size])
            full = len(key) == self.page_size
            if not key or key in parent.children or not (full or at):
                return
            # From here on the tree owns the page: the sequence must not free it.
            child = Node(parent, key, sequence.pages.pop(first))
            parent.children[key] = child
            self.tree.num_pages += 1
            parent = child

    def match_prefix(self, token_ids: list[int]) -> PrefixMatch:
        """Take a half-written page for a whole one when its first token fits."""
        match: PrefixMatch = self._match_prefix(token_ids)
        begin, end = match.num_tokens, match.num_tokens + self.page_size
        if end > len(token_ids):
            return match
        for key, child in match.node.children.items():
            if len(key) < self.page_size and key[0] == token_ids[begin]:
                # The page is now known under its reader's tokens, as if it held them.
                del match.node.children[key]
                child.key = tuple(token_ids[begin:end])
                match.node.children[child.key] = child
                return self.match_prefix(token_ids)
        return match
