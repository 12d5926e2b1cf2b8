"""Continuation: an interrupted task is taken up again.

Claim: after "write a page", an interruption, and the partial answer sent back as a turn, "to a
  file" is answered for that very page, with and without a long history before it.
Why it breaks in practice: this is how lost context is met first: "write a tic tac toe html page",
  interrupted, "to a file", and the model reasons that "this is the first message".
A failure means: the turns before the last were not rendered, or not read. An answer that denies
  the conversation is scored amnesic, wherever the denial stands.
Cost: 14 short conversations (3k tokens) and 14 with 1k to 4k tokens before (23k), 2 requests each.
Needs: chat.
"""

import pytest

from fidelity.checks.affording import context_within
from fidelity.checks.continuation import (
    classes_of,
    continuations,
    fitting,
    fresh_of_class,
)
from fidelity.checks.second_stage import with_fresh
from fidelity.measure import Measure

RIGHT = 0.80
HISTORIES_TOKENS = {
    "short": {"quick": (0,), "standard": (0, 300), "deep": (0, 300)},
    "long": {
        "quick": (1_000, 1_000, 1_000, 2_000, 4_000),
        "standard": (1_000, 4_000, 12_000),
        "deep": (4_000, 12_000, 30_000),
    },
}


@pytest.mark.parametrize("history", HISTORIES_TOKENS)
def test_interrupted_page_is_taken_up_again(measure: Measure, history: str) -> None:
    """The follow-up names the interrupted page in >= 0.80 of conversations."""
    count = measure.trials_planned(quick=14, standard=59, deep=93)
    lengths = fitting(HISTORIES_TOKENS[history][measure.budget], context_within(measure, count))
    measure.control(
        "positive",
        "the turns with the page are dropped",
        continuations(seed=measure.seed, count=4, history_tokens=lengths[:1], without_page=True),
    )
    trials = measure.ask(continuations(seed=measure.seed, count=count, history_tokens=lengths))
    opened = measure.open_classes(
        trials,
        classes_of,
        lambda name, number: fresh_of_class(name, number, seed=measure.seed),
    )
    measure.rate_at_least(
        with_fresh(trials, opened),
        RIGHT,
        title=f"follow-up after {history} history right in >= {RIGHT:.2f}",
    )
