"""Long answers, judged for repetition and for how they were counted and ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fidelity.checks.repetition import repetition
from fidelity.probes.dialogue import assistant, user
from fidelity.probes.probe import Ask, Probe, ProbeResult, excerpt
from fidelity.words import Blame, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.measure import Measure
    from fidelity.probes.dialogue import Message
    from fidelity.records import Finding, Trial

SUBJECTS = ("river", "fox", "garden", "wolf", "castle", "clock", "boat", "tiger", "bridge", "piano")
FORMS = (
    "Write {lines} numbered lines about the {subject}.",
    "Tell me a story of {days} days about the {subject}.",
)
COUNTING = "Count from 1 to 90."
CONTINUE = "continue"
MOST_ROUNDS = 4
ENOUGH_FRAC = 0.5
"""Of the text asked for; with less a loop had no room to begin."""
_TOKENS_PER_LINE = 14
_TOKENS_PER_DAY = 22
_LINE = "The silver boat sails to the winter harbor.\n"
_LATE = " and then"


def prompts(count: int, tokens: int) -> list[str]:
    """Return that many different requests for a text of about so many tokens."""
    lines, days = tokens // _TOKENS_PER_LINE + 5, tokens // _TOKENS_PER_DAY + 3
    asked = [
        form.format(lines=lines, days=days, subject=subject)
        for subject in SUBJECTS
        for form in FORMS
    ]
    return [COUNTING, *asked][:count]


def long_text_probe(prompt: str, tokens: int, kept: list[str]) -> Probe:
    """Return a probe that has a long text written, and judges each answer of it.

    A model that stops early is asked to continue, up to `MOST_ROUNDS` answers.

    Args:
        prompt: what to write.
        tokens: of all answers together; no answer is longer.
        kept: the texts are added here, for the controls.
    """

    async def script(ask: Ask) -> ProbeResult:
        history: list[Message] = [user(prompt)]
        written, breaches, miscounts = 0, list[str](), list[str]()
        for number in range(MOST_ROUNDS):
            room = tokens - written
            reply = await ask.chat(history, label=f"answer {number + 1}", max_tokens=room)
            text = reply.reasoning + reply.text
            breaches += repetition(text).breaches
            miscounts += counted_wrong(reply, room)
            kept.append(text)
            written += reply.completion_tokens or len(text.split())
            if written >= ENOUGH_FRAC * tokens or not reply.text:
                break
            history += [assistant(reply.text), user(CONTINUE)]
        return _result(tokens, written, breaches, miscounts, ends_early=prompt == COUNTING)

    return Probe(
        family="long text",
        key=prompt,
        script=script,
        cell={"asked_tokens": tokens},
        recipe={"builder": "long_text_probe", "prompt": prompt, "tokens": tokens},
        expected="a text that repeats nothing",
        cost_tokens=20,
    )


def _result(
    asked: int, written: int, breaches: list[str], miscounts: list[str], *, ends_early: bool
) -> ProbeResult:
    cell: dict[str, str | int] = {"generated_tokens": written}
    if miscounts:
        cell["miscounted"] = excerpt("; ".join(miscounts), 300)
    if breaches:
        cell["breach"] = excerpt("; ".join(breaches), 300)
        return ProbeResult(ok=False, cell=cell)
    if written < ENOUGH_FRAC * asked and not ends_early:
        reason = f"{written} of {asked} tokens were written, however often it was asked to go on"
        return ProbeResult(ok=None, error=reason, cell={**cell, "reason": reason})
    return ProbeResult(ok=True, cell=cell)


def counted_wrong(reply: Reply, max_tokens: int) -> list[str]:
    """Return where finish reason, max_tokens and usage of an answer contradict each other."""
    told, reason = reply.completion_tokens, reply.finish_reason
    if told is None:
        return []
    if told > max_tokens:
        return [f"{told} completion tokens for max_tokens {max_tokens}"]
    if reason == "length" and told < max_tokens:
        return [f"finish_reason 'length' after {told} of {max_tokens} tokens"]
    if reason == "stop" and told == max_tokens:
        return [f"finish_reason 'stop' at max_tokens {max_tokens}"]
    problems = [] if reason in {"stop", "length"} else [f"finish_reason {reason!r}"]
    if told < reply.chunks // 2:
        problems.append(f"{told} completion tokens came in {reply.chunks} pieces")
    return problems


def text_probe(key: str, text: Callable[[], str]) -> Probe:
    """Return a probe that sends nothing and judges a text: for controls."""

    async def script(ask: Ask) -> ProbeResult:
        del ask
        breaches = repetition(text()).breaches
        return ProbeResult(ok=not breaches, cell={"breach": "; ".join(breaches)[:300]})

    return Probe(family="long text", key=key, script=script, cost_requests=0)


def with_repeated_line(text: str) -> str:
    """Replace the last third of a text by one line over and over."""
    third = len(text) // 3
    return text[: len(text) - third] + _LINE * max(4, third // len(_LINE))


def with_late_loop(text: str) -> str:
    """Put a short loop behind a text."""
    return text + _LATE * 6


def healthy_texts() -> dict[str, str]:
    """Return texts that count and list, and repeat nothing."""
    return {
        "counting": " ".join(str(number) for number in range(1, 400)),
        "numbered lines": "\n".join(f"{n}. The {n * 7 % 97} lamps burn." for n in range(1, 120)),
        "counting without spaces": "、".join(f"第{number}天" for number in range(1, 300)),
    }


def damaged_probes(kept: Sequence[str]) -> dict[str, list[Probe]]:
    """Return positive controls by what was done to the texts that the server wrote."""

    def base() -> str:
        return max(kept, key=len, default="") or healthy_texts()["numbered lines"]

    return {
        "the last third becomes one line over and over": [
            text_probe("repeated line", lambda: with_repeated_line(base()))
        ],
        "a short loop is put at the end": [text_probe("late loop", lambda: with_late_loop(base()))],
    }


def healthy_probes() -> list[Probe]:
    """Return null controls: counting and lists, which the judge must let pass."""
    texts = healthy_texts()
    return [text_probe(name, partial(texts.__getitem__, name)) for name in texts]


def repetition_finding(measure: Measure, trials: Sequence[Trial], *, title: str) -> Finding:
    """Decide that no text repeats itself; too little text is inconclusive.

    Nobody is blamed: a weak model loops by itself.
    """
    finding = measure.all_true_finding(trials, title=title, blame=Blame.UNKNOWN)
    short = [trial for trial in trials if trial.ok is None and "reason" in trial.cell]
    if finding.outcome is Outcome.ERROR and len(short) == sum(t.ok is None for t in trials):
        reason = f"{len(short)} of {len(trials)} texts: {short[0].cell['reason']}"
        return msgspec.structs.replace(finding, outcome=Outcome.INCONCLUSIVE, reason=reason)
    return finding


def counts_finding(measure: Measure, trials: Sequence[Trial], *, title: str) -> Finding:
    """Decide that finish reasons and token counts of the same trials are consistent."""
    judged = [
        trial if trial.error else msgspec.structs.replace(trial, ok="miscounted" not in trial.cell)
        for trial in trials
    ]
    return measure.all_true_finding(judged, title=title)
