"""One readable page in the terminal: what was asked, what is left of the chat, and the verdict."""

import textwrap
from dataclasses import dataclass

from fidelity.triage.answers import Answer
from fidelity.triage.conversation import Conversation, text_of
from fidelity.triage.decision import Decision
from fidelity.triage.desk import Mode, Tally
from fidelity.triage.files import Written

WIDTH = 100
_SHOWN_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a triage found, for the page and the journal.

    Attributes:
        given: the chat as it was given.
        expectation: in words.
        arms: replays of it, by mode.
        notes: what the reader must know about the replays.
        smallest: what is left of it; None when nothing failed.
        again: replays of the smallest.
        mode: in which it fails.
        sizes: prompt tokens of both, where usage tells.
        shrink_requests: what shrinking took.
        stopped: shrinking ended at its bound.
        answers: of the questions.
        decision: the verdict.
        requests: of the whole triage.
    """

    given: Conversation
    expectation: str
    arms: dict[Mode, Tally]
    notes: tuple[str, ...]
    decision: Decision
    requests: int
    smallest: Conversation | None = None
    again: Tally | None = None
    mode: Mode | None = None
    sizes: tuple[int | None, int | None] = (None, None)
    shrink_requests: int = 0
    stopped: bool = False
    answers: tuple[Answer, ...] = ()


def page_lines(outcome: Outcome, written: Written | None) -> list[str]:
    """Return the page."""
    given = outcome.given
    lines = [
        f"expected    {outcome.expectation}",
        f"given       {_size(given, outcome.sizes[0])}",
    ]
    if given.seen:
        lines += _wrapped("recorded", repr(_short(given.seen)))
    for mode, tally in outcome.arms.items():
        why = next((one.why for one in tally.tries if one.failed), "")
        why = why or next((one.why for one in tally.tries), "")
        lines += _wrapped("replayed", f"{mode}: {tally.words}; {why}")
    for note in outcome.notes:
        lines += _wrapped("note", note)
    if outcome.smallest is not None:
        lines += _smallest_lines(outcome)
    if outcome.answers:
        lines += ["", "questions"]
        for answer in outcome.answers:
            lines += _answer_lines(answer)
    lines += _verdict_lines(outcome.decision)
    if written is not None:
        lines += [
            "",
            "send it again",
            f"  fidelity triage {written.script}",
            f"  sh {written.shell}    (the request is {written.body.name})",
        ]
    return lines


def _smallest_lines(outcome: Outcome) -> list[str]:
    smallest = outcome.smallest or outcome.given
    end = ", where the bound was reached" if outcome.stopped else ""
    again = f"; {outcome.again.words}" if outcome.again is not None else ""
    size = _size(smallest, outcome.sizes[1])
    lines = ["", f"smallest    {size}, after {outcome.shrink_requests} requests{end}{again}"]
    for message in smallest.messages:
        lines += _message_lines(message["role"], _shown(message))
    if outcome.again is not None and outcome.again.tries:
        lines += _message_lines("=>", outcome.again.tries[-1].why)
    return lines


def _shown(message: object) -> str:
    fields = dict(message) if isinstance(message, dict) else {}
    text = text_of(fields)
    calls = [
        f"calls {c['function'].get('name')}({c['function'].get('arguments')})"
        for c in fields.get("tool_calls") or ()
        if isinstance(c, dict) and isinstance(c.get("function"), dict)
    ]
    return _short(" ".join([text, *calls]).strip())


def _message_lines(role: str, text: str) -> list[str]:
    return textwrap.wrap(
        _plain(text) or "(empty)",
        WIDTH,
        initial_indent=f"  {role:<10}",
        subsequent_indent=" " * 12,
    )


def _answer_lines(answer: Answer) -> list[str]:
    cost = f" ({answer.requests} requests)" if answer.requests else ""
    lines = [f"  {answer.name:<10}{answer.answered}: {answer.asked}{cost}"]
    return lines + textwrap.wrap(
        _plain(answer.says), WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 12
    )


def _verdict_lines(decision: Decision) -> list[str]:
    blame = f" (blame: {decision.blame})" if decision.blame is not None else ""
    lines = ["", f"verdict: {decision.where}{blame}"]
    lines += _indented(decision.because)
    if decision.cleared:
        lines += ["", "cleared"]
        for text in decision.cleared:
            lines += _indented(text, mark="- ")
    if decision.left:
        lines += ["", "suspects left"]
        for text in decision.left:
            lines += _indented(text, mark="- ")
    return lines


def _indented(text: str, mark: str = "") -> list[str]:
    return textwrap.wrap(
        _plain(text), WIDTH, initial_indent=f"  {mark}", subsequent_indent=" " * (2 + len(mark))
    )


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        _plain(text), WIDTH, initial_indent=f"{name:<12}", subsequent_indent=" " * 12
    )


def _size(chat: Conversation, tokens: int | None) -> str:
    counted = f"{tokens:,} tokens" if tokens is not None else f"{chat.characters:,} characters"
    turns = f"{chat.turns} turn{'s' if chat.turns != 1 else ''}"
    how = "streamed" if chat.stream else "in one piece"
    return f"{turns}, {len(chat.messages)} messages, {counted}, {how}"


def _short(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return text
    half = _SHOWN_CHARS // 2
    return f"{text[:half]} ... [{len(text) - 2 * half:,} characters] ... {text[-half:]}"


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
