"""An answer that ends exactly with a page is cached with its last token not computed.

The pages of a finished request are entered under all its tokens, though the last one was drawn and
never computed. Where it is the last of its page, the next turn finds a page whose last row and last
entries hold what stood there before.
"""

from typing import Any

from engine.sequence import FinishReason, Sequence

NAME = "answer_page_one_token_short"
KIND = "prefix"
RUNG = "structural"
REPORT = "https://github.com/waybarrios/vllm-mlx/pull/311"
TRIGGER = "prompt and answer end at 0 modulo the page size, and the conversation goes on"
PATCH = None
SUITES = {"test_twins_phases"}
# The page begins with a prompt's tokens or lies behind them, and ends with generated ones: only a
# later turn reads such a page. Other twins ask for prompts again, not for their answers.
TWINS = {"turned"}


def install(engine: Any) -> None:
    """Wrap `ownership.release`."""
    release = engine.ownership.release
    page_size = engine.prefix_tree.page_size

    def release_all_tokens(sequence: Sequence, reason: FinishReason | None) -> None:
        tokens = len(sequence.token_ids)
        ended = reason in ("stop", "length") and sequence.completion_tokens > 0
        if ended and tokens % page_size == 0 and sequence.num_computed == tokens - 1:
            sequence.num_computed = tokens
        release(sequence, reason)

    engine.ownership.release = release_all_tokens
