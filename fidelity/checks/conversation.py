"""Recall over turns, against the same facts in one message."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fidelity.checks.aiming import aimed
from fidelity.checks.answering import answer
from fidelity.checks.dealing import dealt
from fidelity.checks.recall import residues
from fidelity.probes.accounting import where_lost
from fidelity.probes.dialogue import (
    TOOL_SHAPES,
    Dialogue,
    Outline,
    Shape,
    Turn,
    assistant,
    dialogue,
    user,
)
from fidelity.probes.probe import Ask, Probe, ProbeResult, Script
from fidelity.probes.scoring import Expected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.records import Trial

TELL_TOKENS = 32
"""Room for "OK." and its like; a longer acknowledgement is cut, which hurts nobody."""
THINK_TOKENS = 256
_LINE_TOKENS = 26
_TURN_TOKENS = 40
_CLASS_MODULI = (4, 16)

History = list[dict[str, Any]]


def turns_probe(outline: Outline, *, aim: tuple[int, int] | None = None) -> Probe:
    """Return a probe that tells facts in turns, each really sent, and asks for one of them.

    Args:
        outline: of the conversation.
        aim: (modulus, residue) that the length of the last prompt must have.
    """
    talk = dialogue(outline)

    async def script(ask: Ask) -> ProbeResult:
        history = await _begun(ask, talk)
        replies: list[Reply] = []
        for turn in talk.turns:
            history.append(user(turn.text))
            if turn.scripted:
                history.extend(turn.scripted)
                continue
            reply = await _tell(ask, history, talk, turn)
            replies.append(reply)
            history.append(as_turn(reply))
        history = await _asked(ask, history, talk, aim)
        judged = await answer(ask, history, _expected(talk), tools=talk.tools)
        lost = ""
        if judged.ok is False:
            lost = await where_lost(ask.client, history, [*replies, judged.reply], tools=talk.tools)
        return ProbeResult(
            ok=judged.ok,
            score=judged.score,
            error=judged.error,
            lost=lost,
            cell=measured(judged.reply),
            paths=paths_of(judged.reply),
        )

    lived = sum(not turn.scripted for turn in talk.turns) + bool(talk.system)
    recipe = {"builder": "turns_probe", **outline.recipe, "aim": aim}
    return _probe(outline, talk, script, recipe, requests=lived + 1)


def one_message_probe(outline: Outline, *, without_fact: bool = False) -> Probe:
    """Return the control of `turns_probe`: the same facts and question in one message.

    Args:
        outline: of the conversation.
        without_fact: the damage of the positive control: the question alone is sent.
    """
    talk = dialogue(outline)
    text = talk.question if without_fact else talk.in_one_message()

    async def script(ask: Ask) -> ProbeResult:
        judged = await answer(ask, [user(text)], _expected(talk))
        return ProbeResult(
            ok=judged.ok, score=judged.score, error=judged.error, cell=measured(judged.reply)
        )

    recipe = {"builder": "one_message_probe", **outline.recipe, "without_fact": without_fact}
    return _probe(outline, talk, script, recipe, requests=1)


def paired_probes(
    *, seed: int, count: int, shapes: Sequence[Shape], facts: Sequence[int], lines: Sequence[int]
) -> dict[str, list[Probe]]:
    """Return both arms, "turns" and "one message", with the same keys in the same order."""
    draw = random.Random(f"conversations {seed}")  # noqa: S311 - prompts, not secrets
    shares = (dealt(shapes, count, draw), dealt(facts, count, draw), dealt(lines, count, draw))
    outlines = [
        Outline(seed=f"{seed}-{index}", shape=shape, facts=number, note_lines=note_lines)
        for index, (shape, number, note_lines) in enumerate(zip(*shares, strict=True))
    ]
    return {
        "": [turns_probe(outline) for outline in outlines],
        "one message": [one_message_probe(outline) for outline in outlines],
    }


def fitting_lines(lines: Sequence[int], limit_tokens: int | None) -> list[int]:
    """Return lengths of notes that leave room in the context: at most half of it."""
    most = max(lines) if limit_tokens is None else max(1, limit_tokens // 2 // _LINE_TOKENS)
    return [min(count, most) for count in lines]


def usable_shapes(has_tools: bool, has_reasoning: bool) -> list[Shape]:
    """Return the shapes of conversation that a deployment can hold."""
    return [
        shape
        for shape in Shape
        if (has_tools or shape not in TOOL_SHAPES)
        and (has_reasoning or shape is not Shape.REASONING)
    ]


def classes_of(trial: Trial) -> list[str]:
    """Return the classes of a conversation: its shape, and residues of its last prompt."""
    axes = ["shape", *(f"residue_{modulus}" for modulus in _CLASS_MODULI)]
    return [f"{axis}={trial.cell[axis]}" for axis in axes if axis in trial.cell]


def fresh_of_class(
    name: str,
    count: int,
    *,
    seed: int,
    shapes: Sequence[Shape],
    facts: Sequence[int],
    lines: Sequence[int],
) -> list[Probe]:
    """Return new conversations of one class, "shape=..." or "residue_...=..."."""
    axis, _, value = name.partition("=")
    draw = random.Random(f"class {seed} {name}")  # noqa: S311 - prompts, not secrets
    aim = (int(axis.removeprefix("residue_")), int(value)) if axis != "shape" else None
    usable = [Shape(value)] if aim is None else list(shapes)
    return [
        turns_probe(
            Outline(
                seed=f"{seed}-class-{name}-{index}",
                shape=shape,
                facts=draw.choice(facts),
                note_lines=draw.choice(lines),
            ),
            aim=aim,
        )
        for index, shape in enumerate(dealt(usable, count, draw))
    ]


def as_turn(reply: Reply) -> dict[str, Any]:
    """Return an answer as the assistant turn that goes back with the next request."""
    turn = assistant(reply.text)
    if reply.reasoning:
        turn["reasoning_content"] = reply.reasoning
    return turn


def measured(reply: Reply) -> dict[str, str | int | float]:
    """Return the token counts of the deciding request as axes, with the residues of its length."""
    axes: dict[str, str | int | float] = {}
    if reply.prompt_tokens is not None:
        axes |= residues(reply.prompt_tokens)
    if reply.cached_tokens is not None:
        axes["cached_tokens"] = reply.cached_tokens
    return axes


def paths_of(reply: Reply) -> tuple[str, ...]:
    """Return the path that usage proves: cached or cold."""
    if reply.cached_tokens is None:
        return ()
    return ("cached",) if reply.cached_tokens else ("cold",)


async def _begun(ask: Ask, talk: Dialogue) -> History:
    """Return the system message, or a user turn with its text where the server refuses one.

    Some templates know no system role and say so; that loses nothing in silence.
    """
    if not talk.system:
        return []
    history: History = [{"role": "system", "content": talk.system}]
    tried = await ask.chat(
        [*history, user("Hello!")], label="system", max_tokens=1, allow_status={400}
    )
    return history if tried.status == 200 else [user(talk.system), assistant("OK.")]


async def _asked(
    ask: Ask, history: History, talk: Dialogue, aim: tuple[int, int] | None
) -> History:
    if aim is None:
        return [*history, user(talk.question)]
    modulus, residue = aim
    return await aimed(
        ask, history, talk.question, modulus=modulus, residue=residue, tools=talk.tools
    )


async def _tell(ask: Ask, history: History, talk: Dialogue, turn: Turn) -> Reply:
    if turn.thinking:
        return await ask.chat(
            history, label="reason", max_tokens=THINK_TOKENS, tools=talk.tools, thinking=True
        )
    return await ask.chat(history, label="tell", max_tokens=TELL_TOKENS, tools=talk.tools)


def _expected(talk: Dialogue) -> Expected:
    return Expected(right=talk.right, distractors=talk.distractors, superseded=talk.superseded)


def _probe(
    outline: Outline, talk: Dialogue, script: Script, recipe: Mapping[str, Any], *, requests: int
) -> Probe:
    has_notes = outline.shape in {Shape.NOTES, Shape.TOOL_RESULT}
    note_lines = outline.note_lines if has_notes else 0
    turns = len(talk.turns) + 1
    return Probe(
        family="conversation",
        key=f"{outline.shape}/{outline.facts}/{note_lines}/{outline.seed}",
        script=script,
        cell={"shape": str(outline.shape), "facts": outline.facts, "note_lines": note_lines},
        recipe=recipe,
        expected=talk.right,
        cost_tokens=_TURN_TOKENS * turns + _LINE_TOKENS * note_lines,
        cost_requests=requests,
    )
