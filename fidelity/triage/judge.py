"""Whether an answer fails: by what is in it, by what is not, or by denying the conversation."""

from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.endpoint.replies import Reply
from fidelity.probes.amnesia import denies_the_conversation
from fidelity.probes.scoring import Answer, Expected, names_code, names_words, score
from fidelity.triage.conversation import Conversation, Message, text_of
from fidelity.words import Score

_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One judged answer. `failed` is None where it says nothing, and `why` tells the reason."""

    failed: bool | None
    why: str
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a good answer holds and a bad one does. Without either, a denial alone is bad."""

    expect: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    guessed: bool = False
    """Nobody named what is expected: it was read off the chat."""

    @property
    def words(self) -> str:
        """Return the expectation as a sentence."""
        parts = [f"the answer holds {text!r}" for text in self.expect]
        parts += [f"it does not hold {text!r}" for text in self.reject]
        return " and ".join(parts) or "the answer does not deny that there was a conversation"

    def judge(self, reply: Reply) -> Judged:
        """Judge one answer, over content, tool arguments and reasoning."""
        answer = Answer.of(reply)
        said = _said(answer, reply)
        for text in self.reject:
            if names(answer.said, text):
                why = f"it holds {text!r}: {said}"
                return Judged(failed=True, why=why, score=Score.WRONG)
        if not (self.expect or self.reject):
            return _unless_denied(answer, said)
        for text in self.expect:
            found = score(answer, Expected(right=text, digits=text.isdigit(), open_ended=True))
            if found is not Score.RIGHT:
                return _missing(answer, text, found, said)
        return Judged(failed=False, why=said, score=Score.RIGHT)

    def facts_in(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the expected texts that stand in messages."""
        return tuple(text for text in self.expect if any(names(text_of(m), text) for m in messages))

    def answerable(
        self, conversation: Conversation, facts: Sequence[str], pinned: Sequence[Message] = ()
    ) -> bool:
        """Tell whether a smaller conversation still holds what a good answer needs.

        Facts must stand before the question, and so must pinned messages. Where a denial alone is
        bad, there must be an earlier turn: "this is the first message" is true of a single one.
        """
        if set(self.facts_in(conversation.context)) < set(facts):
            return False
        if any(message not in conversation.context for message in pinned):
            return False
        return bool(self.expect or self.reject) or conversation.turns > 1


def _missing(answer: Answer, text: str, found: Score, said: str) -> Judged:
    """Judge an answer without the text; what was cut says nothing of what would have followed."""
    if answer.cut:
        inside = "its reasoning" if not answer.said and answer.reasoning else said
        return Judged(failed=None, why=f"cut inside {inside}", score=Score.CUT)
    return Judged(failed=True, why=f"no {text!r} in it: {said}", score=found)


def _unless_denied(answer: Answer, said: str) -> Judged:
    denial = denies_the_conversation(answer.said) or denies_the_conversation(answer.reasoning)
    if denial:
        return Judged(failed=True, why=f"it says {denial!r}", score=Score.AMNESIC)
    if answer.cut and not answer.said:
        inside = "its reasoning" if answer.reasoning else said
        return Judged(failed=None, why=f"cut inside {inside}", score=Score.CUT)
    return Judged(failed=False, why=said, score=Score.RIGHT)


def names(text: str, wanted: str) -> bool:
    """Tell whether a text names a number or words, however they are set."""
    return names_code(text, wanted) if wanted.isdigit() else names_words(text, wanted)


def _said(answer: Answer, reply: Reply) -> str:
    """Return what an answer is, for a sentence: a tool call is named as such, not as a text."""
    calls = [f"a call of {call.name or '?'}({call.arguments})" for call in reply.tool_calls]
    said = [repr(answer.content)] if answer.content.strip() else []
    if not (said or calls) and answer.reasoning:
        said = [repr(f"(reasoning) {answer.reasoning}")]
    one_line = " ".join(" and ".join([*said, *calls]).split())
    short = one_line if len(one_line) <= _SHOWN else one_line[:_SHOWN] + "..."
    return short or "an empty answer"
