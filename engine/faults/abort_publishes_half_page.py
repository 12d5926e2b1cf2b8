"""An aborted request's half-written and unwritten pages enter the prefix tree.

The tree gets the tokens that the request claims to have, not those that were computed. Unwritten
rows hold whatever the page's last owner left, or nothing, and a follow-up reads them in place of
its own tokens.
"""

from typing import Any

from engine.prefix_tree import Node, PrefixMatch
from engine.sequence import FinishReason, Sequence

NAME = "abort_publishes_half_page"
KIND = "abort"
RUNG = "structural"
REPORT = "https://github.com/sgl-project/sglang/pull/28374"
TRIGGER = (
    "a request is aborted while its prompt is read, and a later one begins with the same prompt; "
    "or it is aborted inside a page other than its first, and a later one reaches past that page"
)
PATCH = None
SUITES = {"test_abort_then_followup"}


def install(engine: Any) -> None:
    """Wrap `ownership.release`, which every end goes through, and `prefix_tree.match_prefix`."""
    ownership, tree = engine.ownership, engine.prefix_tree
    release, match_prefix = ownership.release, tree.match_prefix

    def release_too_much(sequence: Sequence, reason: FinishReason | None) -> None:
        if reason == "abort" and ownership.use_prefix_cache:
            ownership.publish(sequence)
            publish_claims(sequence)
        release(sequence, reason)

    def publish_claims(sequence: Sequence) -> None:
        parent = sequence.node or tree.root
        first = sequence.num_shared_pages
        for at in range(first, len(sequence.pages)):
            begin = at * tree.page_size
            key = tuple(sequence.token_ids[begin : begin + tree.page_size])
            full = len(key) == tree.page_size
            if not key or key in parent.children or not (full or at):
                return
            # From here on the tree owns the page: the sequence must not free it.
            child = Node(parent, key, sequence.pages.pop(first))
            parent.children[key] = child
            tree.num_pages += 1
            parent = child

    def match_half_pages_too(token_ids: list[int]) -> PrefixMatch:
        match: PrefixMatch = match_prefix(token_ids)
        begin, end = match.num_tokens, match.num_tokens + tree.page_size
        if end > len(token_ids):
            return match
        for key, child in match.node.children.items():
            if len(key) < tree.page_size and key[0] == token_ids[begin]:
                # The page is now known under its reader's tokens, as if it held them.
                del match.node.children[key]
                child.key = tuple(token_ids[begin:end])
                match.node.children[child.key] = child
                return match_half_pages_too(token_ids)
        return match

    ownership.release = release_too_much
    tree.match_prefix = match_half_pages_too
