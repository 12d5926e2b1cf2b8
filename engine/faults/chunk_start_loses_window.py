"""Each chunk of a prompt but the first finds nulls where its layers of a window alone look back.

The page before a chunk counts as done with, and its rows are handed out as null rows to the layers
that keep a window only; layers with compressed entries are right. The first tokens of each chunk
see a shorter window, and everything behind them is a little off.
"""

from typing import Any

from engine.runner import Slice, StepResult
from engine.sequence import Sequence

NAME = "chunk_start_loses_window"
KIND = "prefix"
RUNG = "drift"
REPORT = "https://github.com/vllm-project/vllm/pull/17398"
TRIGGER = "a prompt, or what is not cached of it, is longer than one chunk"
PATCH = None
SUITES = {"test_twins_phases"}
# All three hold tokens computed in a second chunk against the same tokens computed otherwise: in
# pieces of one chunk, by decoding, or over the turns of a conversation. Both arms of all other
# twins are computed in the same chunks.
TWINS = {"chunked", "decoded", "turned"}


def install(engine: Any) -> None:
    """Wrap `runner.run`: the rows are nulls during a step, and put back behind it."""
    run = engine.runner.run
    page_size = engine.prefix_tree.page_size
    windows = [layer.window for layer in engine.pools.layers if layer.entries is None]

    def run_with_nulls(slices: list[Slice]) -> StepResult:
        behind = [place(sequence) for sequence, _ in slices if continues(sequence)]
        kept = [(pool, *at, pool[at].clone()) for pool in windows for at in behind]
        for pool, page, rows, _ in kept:
            pool[page, rows] = 0.0
        result = run(slices)
        for pool, page, rows, old in kept:
            pool[page, rows] = old
        return result  # type: ignore[no-any-return]

    def continues(sequence: Sequence) -> bool:
        cached: int = sequence.num_shared_pages * page_size
        return cached < sequence.num_computed < sequence.prompt_tokens - 1

    def place(sequence: Sequence) -> tuple[int, slice]:
        """Return the page before the chunk, and its rows that are computed."""
        last = sequence.num_computed - 1
        return sequence.pages[last // page_size], slice(0, last % page_size + 1)

    engine.runner.run = run_with_nulls
