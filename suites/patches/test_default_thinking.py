"""The default thinking mode of the chat encoder.

Claim: in the engine as it is deployed, the patch changes what happens where a request does not
  say, and nothing else; each prompt is the reference encoder's, token by token, and one with
  thinking differs from one without only after the last assistant marker.
Why it breaks in practice: reasoning eats the token budget and answers are cut, or reasoning of
  earlier turns is kept or dropped otherwise, and tests of another mode say nothing of this one.
A failure means: the default is not what was asked for, or it changes prompts elsewhere.
Cost: about 5 s: the engine is started twice on its smallest checkpoint.
Needs: a checkpoint with encoding.json; a free port.
"""

from typing import Any

from fidelity.microtests.results import Check
from fidelity.statistics.ladder import Difference, rung
from fidelity.words import Question
from reference.default_thinking import read_constants, render
from suites.patches.binding import bound, bound_without
from suites.patches.deployed_encoder import MODEL, Asked, prompts
from suites.patches.examination import Examination

CONVERSATIONS: tuple[list[dict[str, Any]], ...] = (
    [{"role": "user", "content": "Hello."}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Write a page."},
        {"role": "assistant", "content": "<html></html>"},
        {"role": "user", "content": "To a file."},
    ],
)
REASONED: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 7 x 8?"},
    {"role": "assistant", "content": "56.", "reasoning_content": "Seven eights."},
    {"role": "user", "content": "And half of it?"},
]
"""Reasoning of an earlier turn, which leaves the prompt."""


def test_the_default_is_what_was_asked_for(examination: Examination) -> None:
    """On: think; off: do not; and each look is counted."""
    on, off = bound(examination), bound_without(examination)
    wrong = int(on.default_thinking() is not True) + int(off.default_thinking() is not False)
    examination.take([_check(Question.IMPLEMENTATION, "defaults that are not as asked", wrong)])
    examination.ran(on, off, "default_thinking")


def test_the_deployed_encoder_writes_these_prompts(examination: Examination) -> None:
    """On and off; the request says nothing, yes, or no: the engine's prompt is the reference's."""
    constants = read_constants(MODEL / "encoding.json")
    asked = [
        Asked(messages, said)
        for messages in (*CONVERSATIONS, REASONED)
        for said in (None, True, False)
    ]
    for state, flags, default in (
        ("on", ("--patch", "default_thinking"), True),
        ("off", (), False),
    ):
        texts = [
            render(constants, q.messages, thinking=default if q.thinking is None else q.thinking)
            for q in asked
        ]
        found = prompts(flags, asked, texts)
        wrong = sum(made != want for made, want in zip(found.made, found.wanted, strict=True))
        name = f"prompts of the engine that are not the reference's, patch {state}"
        examination.take([_check(Question.IMPLEMENTATION, name, wrong)])


def test_prompts_differ_only_at_their_end(examination: Examination) -> None:
    """With and without thinking, all before the last assistant marker is the same."""
    constants = read_constants(examination.checkpoint / "encoding.json")
    wrong = 0
    for messages in CONVERSATIONS:
        with_, without = (render(constants, messages, thinking=mode) for mode in (True, False))
        cut = without.rindex(constants.assistant)
        wrong += with_[:cut] != without[:cut] or with_ == without
    examination.take([_check(Question.FORMAT, "prompts that differ elsewhere", wrong)])


def _check(question: Question, name: str, wrong: int) -> Check:
    return Check(
        question=question,
        name=name,
        value=wrong,
        limit=0,
        holds=wrong == 0,
        rung=rung(Difference(lost=wrong > 0, equal=wrong == 0)),
        sentence=f"{wrong} {name}",
    )
