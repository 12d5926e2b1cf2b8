"""In a batch of four or more, each row carries a hundredth of the row above it.

As a fused epilogue would have it that is chosen by the shape of the batch and reads one row too
early: small enough to pass for a change of summation order, and a neighbour's state all the same.
"""

from typing import Any

from torch import Tensor

from engine.runner import Slice, StepResult

NAME = "batch_row_leaks"
KIND = "precision"
RUNG = "structural"
REPORT = "https://github.com/kekzl/imp/issues/1314"
TRIGGER = "four requests or more are computed in one step"
PATCH = None
SUITES = {"test_twins_batch"}
# Beside three or seven strangers, and beside five of other parameters. Three requests whose order
# is turned round are a batch of three; all other twins ask for one prompt at a time.
TWINS = {"batched", "mixed"}
SHARE = 0.01
ROWS = 4


def install(engine: Any) -> None:
    """Wrap `runner.run`, which knows the batch, and `model.logits`, which gets its last rows."""
    run, logits = engine.runner.run, engine.model.logits
    sequences = [0]

    def run_and_count(slices: list[Slice]) -> StepResult:
        sequences[0] = len(slices)
        result = run(slices)
        sequences[0] = 0
        return result  # type: ignore[no-any-return]

    def logits_of_leaking_rows(hidden: Tensor) -> Tensor:
        if sequences[0] >= ROWS and hidden.shape[0] > 1:
            hidden = hidden + SHARE * hidden.roll(1, dims=0)
        return logits(hidden)  # type: ignore[no-any-return]

    engine.runner.run = run_and_count
    engine.model.logits = logits_of_leaking_rows
