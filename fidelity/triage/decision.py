"""What a triage ends with: where the conversation was lost, and which suspects are left."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fidelity.statistics.stats import clopper_pearson_upper
from fidelity.triage.answers import ONLY_STREAMED, Answer, Answered
from fidelity.triage.desk import Mode, Tally
from fidelity.words import Blame


class Where(StrEnum):
    """Where it was lost."""

    RENDERING = "lost in rendering"
    ATTENTION = "lost in attention"
    CACHE = "lost in the prefix cache"
    STREAM = "lost in the stream"
    ONE_PIECE = "lost in the answer in one piece"
    REASONING = "lost in reasoning"
    SAMPLING = "lost in sampling"
    MODEL_LIMIT = "model limit"
    NOT_REPRODUCED = "not reproduced"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The end of a triage.

    Attributes:
        where: the verdict.
        because: the evidence that decided, one sentence.
        blame: who, as far as it is known; None when nothing failed.
        left: suspects that no question has cleared.
        cleared: what the questions have cleared, each with its evidence.
    """

    where: Where
    because: str
    blame: Blame | None
    left: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()


SUSPECTS = {
    Where.RENDERING: (
        "the chat template, or the server's own encoder of it",
        "a gateway or router that rewrites the messages",
        "a limit that cuts the context silently",
    ),
    Where.ATTENTION: (
        "attention kernels and what selects their keys (indexer, top-k), in prefill and decode",
        "the KV cache: its format, pages, transfer between workers",
        "positions: RoPE, its scaling, offsets of chunks",
    ),
    Where.CACHE: (
        "the prefix cache: what a hit restores, its locks, its eviction",
        "a host tier or a transfer that hands pages back",
    ),
    Where.STREAM: (
        "the streaming detokenizer: what it holds back of a character in several tokens, or loses",
        "a parser of tools or reasoning that works on deltas",
        "a gateway that buffers, cuts or drops events",
    ),
    Where.ONE_PIECE: (
        "what makes the whole answer: its detokenizer, the parsers of tools and reasoning",
        "a gateway that rewrites or shortens bodies",
    ),
    Where.REASONING: (
        "the template's handling of earlier reasoning, and the default thinking mode",
        "the reasoning parser, if the answer stands in what it cut away",
    ),
    Where.SAMPLING: ("sampling parameters that are too hot for this model",),
    Where.MODEL_LIMIT: (
        "the model itself; or a fault that short prompts have too: `--stock` tells them apart",
    ),
    Where.UNDECIDED: ("whatever no question could be asked about",),
    Where.NOT_REPRODUCED: (
        "load: other requests in the batch, aborts, eviction (run the suites with --allow load)",
        "another replica, or a server that has restarted since",
        "sampling that the chat does not name",
    ),
}
_WEAKNESS = (
    "the model's own weakness over several turns or with tool results, which one short message does"
    " not clear: `--stock` does"
)
_CLEARED = {
    "rendering": "the rendering",
    "cold": "the prefix cache",
    "length": "one residue of lengths",
    "reasoning": "the reasoning mode",
    "hop": "the hops",
    "short": "the model's ability to answer it in one message",
    "stream": "the way of the answer, as a stream or in one piece",
}


def not_reproduced(arms: dict[Mode, Tally]) -> Decision:
    """Return the decision on a chat that did not fail."""
    said = ", ".join(f"{mode} {tally.words}" for mode, tally in arms.items())
    judged = sum(tally.judged for tally in arms.values())
    if not judged:
        why = next((t.why for tally in arms.values() for t in tally.tries), "nothing was asked")
        return Decision(
            where=Where.UNDECIDED,
            because=f"no answer could be judged: {why}",
            blame=None,
            left=SUSPECTS[Where.UNDECIDED],
        )
    for mode, tally in arms.items():
        if not tally.judged:
            why = next((one.why for one in tally.tries), "nothing was asked")
            return Decision(
                where=Where.UNDECIDED,
                because=f"{mode}: no answer could be judged: {why}",
                blame=None,
                left=SUSPECTS[Where.UNDECIDED],
            )
    bound = clopper_pearson_upper(0, judged)
    return Decision(
        where=Where.NOT_REPRODUCED,
        because=(
            f"{said}; a failure in more than {bound:.0%} of replays would have shown with 95 %"
            " confidence"
        ),
        blame=None,
        left=SUSPECTS[Where.NOT_REPRODUCED],
    )


def decide(arms: dict[Mode, Tally], answers: Sequence[Answer]) -> Decision:
    """Return the decision on a chat that fails."""
    by_name = {answer.name: answer for answer in answers}
    where, because, blame = _where(arms, by_name)
    cleared = [
        f"{_CLEARED[answer.name]}: {answer.says}"
        for answer in answers
        if answer.answered is Answered.CLEARED and answer.name in _CLEARED
    ]
    left = list(SUSPECTS[where])
    if where is Where.ATTENTION and blame is Blame.UNKNOWN:
        left.append(_WEAKNESS)
    greedy = arms.get(Mode.GREEDY)
    if where is not Where.SAMPLING and greedy is not None and greedy.failed:
        cleared.insert(0, f"sampling: greedily {greedy.words}")
    for name, suspect in (
        ("length", "code that treats the end of a prompt apart: {}"),
        ("hop", "what stands between the hops: {}"),
        ("reasoning", "the reasoning mode: {}"),
    ):
        answer = by_name.get(name)
        if answer is not None and answer.answered is Answered.POINTS:
            left.insert(0, suspect.format(answer.says))
    return Decision(
        where=where, because=because, blame=blame, left=tuple(left), cleared=tuple(cleared)
    )


def _where(arms: dict[Mode, Tally], answers: dict[str, Answer]) -> tuple[Where, str, Blame]:
    state = {name: answer.answered for name, answer in answers.items()}
    said = {name: answer.says for name, answer in answers.items()}
    greedy, sampled = arms.get(Mode.GREEDY), arms.get(Mode.SAMPLED)
    if state.get("rendering") is Answered.POINTS:
        return Where.RENDERING, said["rendering"], Blame.DEPLOYMENT
    if state.get("stream") is Answered.POINTS:
        streamed = said["stream"].startswith(ONLY_STREAMED)
        return Where.STREAM if streamed else Where.ONE_PIECE, said["stream"], Blame.DEPLOYMENT
    if state.get("stock") is Answered.CLEARED:
        return Where.MODEL_LIMIT, f"stock fails alike: {said['stock']}", Blame.MODEL_LIMIT
    if state.get("cold") is Answered.POINTS:
        return Where.CACHE, said["cold"], Blame.DEPLOYMENT
    if greedy is not None and sampled is not None and greedy.never and sampled.failed:
        because = f"greedily {greedy.words}, as sampled {sampled.words}"
        return Where.SAMPLING, because, Blame.UNKNOWN
    return _in_the_model(state, said)


def _in_the_model(state: dict[str, Answered], said: dict[str, str]) -> tuple[Where, str, Blame]:
    """Decide on a chat that stands in the prompt and is not used."""
    if state.get("rendering") is not Answered.CLEARED:
        why = said.get("rendering", "it was not asked")
        return Where.UNDECIDED, f"whether it was rendered cannot be told: {why}", Blame.UNKNOWN
    rendered = f"it stands in the prompt ({said['rendering']})"
    for name in ("stock", "length", "hop"):
        if state.get(name) is Answered.POINTS:
            return Where.ATTENTION, f"{rendered}, and fails {said[name]}", Blame.DEPLOYMENT
    if state.get("reasoning") is Answered.POINTS:
        return Where.REASONING, said["reasoning"], Blame.UNKNOWN
    if state.get("short") is Answered.POINTS:
        because = f"{rendered}, and one short message fails alike: {said['short']}"
        return Where.MODEL_LIMIT, because, Blame.UNKNOWN
    able = "; one short message is answered" if state.get("short") is Answered.CLEARED else ""
    return (
        Where.ATTENTION,
        f"{rendered}, and the answer does not use it{able}",
        Blame.UNKNOWN,
    )
