"""The chat layout, and conversations as a list of weighted parts.

Text parts are final; a `Document` is filled with lines once it is known how many tokens are left.
The weight of a part is that of its tokens in the training loss, in 1/255.
"""

from dataclasses import dataclass, field

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK = "<think>", "</think>"
DSML = "｜DSML｜"
RESULT, END_RESULT = "<tool_result>", "</tool_result>"
# in the order of their ids, 0..9
SPECIALS = (BOS, EOS, PAD, USER, ASSISTANT, THINK, END_THINK, DSML, RESULT, END_RESULT)

NOTHING = 0  # a cut that must not be learnt as an end
CONTEXT = 10  # text that is only read
SOFT = 60  # text with several right continuations
ANSWER = 255


@dataclass(slots=True)
class Document:
    """Lines to read: an opening, filler, and statements planted among the filler.

    planted: (depth 0..1, statement); equal depths keep their order.
    headings: (depth, whole line) set as it is, unless `headings_numbered`: in the line format.
    share: of the tokens that are left, against other documents of the conversation.
    line_format: e.g. "Line {i}: {s}"; None draws one. "{s}" alone is bare lines, "" is prose.
    filler: one sentence to repeat; None draws sentences.
    """

    opening: str = ""
    planted: list[tuple[float, str]] = field(default_factory=list)
    headings: list[tuple[float, str]] = field(default_factory=list)
    share: float = 1.0
    line_format: str | None = None
    filler: str | None = None
    headings_numbered: bool = False


@dataclass(slots=True)
class Turn:
    """One answer of the assistant.

    parts: (text, weight). reasoning: what it thinks before, in thinking mode; "" is none.
    ended: False is a cut: its EOS (when the history has one) teaches nothing.
    """

    parts: list[tuple[str, int]]
    reasoning: str = ""
    ended: bool = True
    eos_after_cut: bool = True


@dataclass(slots=True)
class Conversation:
    """Turns in order. `thinking` is the mode of the request; tools keep all earlier reasoning."""

    system: str = ""
    has_tools: bool = False
    thinking: bool = False
    _messages: list[list[str | Document] | Turn] = field(default_factory=list)

    def user(self, *content: str | Document) -> None:
        """Add a user message: texts and documents, one after the other."""
        self._messages.append(list(content))

    def answer(
        self, text: str | list[tuple[str, int]], weight: int = ANSWER, *, reasoning: str = ""
    ) -> None:
        """Add a whole answer."""
        parts = [(text, weight)] if isinstance(text, str) else text
        self._messages.append(Turn(parts, reasoning))

    def cut_answer(
        self, text: str, *, eos: bool, weight: int = ANSWER, reasoning: str = ""
    ) -> None:
        """Add an answer that was interrupted; `eos`: the next request's history closes it.

        The word in which it ends teaches nothing: cut short, it has tokens that nobody would say.
        """
        at = text.rfind(" ") if " " in text else 0
        parts = [(text[:at], weight), (text[at:], NOTHING)]
        self._messages.append(Turn(parts, reasoning, ended=False, eos_after_cut=eos))

    def parts(self) -> list[tuple[str | Document, int]]:
        """The conversation as the chat encoding lays it out, with the weight of each part."""
        out: list[tuple[str | Document, int]] = [(BOS + self.system, CONTEXT)]
        last = len(self._messages) - 1
        for at, message in enumerate(self._messages):
            if isinstance(message, Turn):
                thinks = self.thinking and (at == last or self.has_tools)
                out += _turn_parts(message, thinks=thinks)
                continue
            out.append((USER, CONTEXT))
            out += [(content, CONTEXT) for content in message]
        return out


def _turn_parts(turn: Turn, *, thinks: bool) -> list[tuple[str | Document, int]]:
    out: list[tuple[str | Document, int]] = [(ASSISTANT, CONTEXT)]
    if thinks:
        out += [(THINK, CONTEXT), (turn.reasoning + END_THINK, SOFT)]
    else:
        out.append((END_THINK, CONTEXT))
    out += turn.parts
    if turn.ended:
        out.append((EOS, turn.parts[-1][1]))
    elif turn.eos_after_cut:
        out.append((EOS, NOTHING))
    return out
