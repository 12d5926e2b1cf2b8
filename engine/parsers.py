"""A model's raw text to reasoning, content and tool calls, as it streams.

Fed in any portions, the joined deltas are the same: the one-shot answer is the stream, joined.
The grammar is V4's, read with tolerance for what models do: a missing end (length stop), a tool
block inside the reasoning without `</think>`, a JSON body inside an invoke. Text that proves to
be no tool block is content, never lost.
"""

from collections.abc import Callable, Sequence

from engine.detokenizer import partial_suffix
from engine.dsml import Delta, ToolBlock
from engine.encoding_spec import EncodingSpec
from engine.tokenizer import Tokenizer


class Parsers:
    """Makes a parser for each answer of one checkpoint."""

    def __init__(self, spec: EncodingSpec, tokenizer: Tokenizer) -> None:
        self.spec = spec
        ends = (tokenizer.token_id(spec.think_end), tokenizer.token_id(spec.dsml))
        self._ends_of_reasoning = frozenset(i for i in ends if i is not None)

    def reasoning_tokens(self, token_ids: Sequence[int], *, thinking: bool) -> int:
        """How many of an answer's tokens came before its reasoning ended."""
        if not thinking:
            return 0
        ends = (at for at, i in enumerate(token_ids) if i in self._ends_of_reasoning)
        return next(ends, len(token_ids))

    def open(self, *, thinking: bool, tools: bool, max_calls: int | None = None) -> "AnswerParser":
        """A parser for one answer.

        Args:
            thinking: the prompt ended with the opening of reasoning.
            tools: the prompt offered tools; without, a tool block is plain text.
            max_calls: end the answer after that many calls.
        """
        return AnswerParser(self.spec, thinking=thinking, tools=tools, max_calls=max_calls)


class AnswerParser:
    """State of one answer. Not thread-safe."""

    def __init__(
        self, spec: EncodingSpec, *, thinking: bool, tools: bool, max_calls: int | None
    ) -> None:
        self._spec = spec
        self._opening = f"<{spec.dsml}tool_calls>"
        self._tools = tools
        self._max_calls = max_calls
        self._step: Callable[[], bool] = self._reasoning if thinking else self._content
        self._text = ""
        self._deltas: list[Delta] = []
        self._block: ToolBlock | None = None
        self.calls = 0
        self.finished = False  # as many calls as asked for are complete: the answer may end here

    def feed(self, text: str) -> list[Delta]:
        """The deltas that this text completes, in order."""
        self._text += text
        while self._text and not self.finished and self._step():
            pass
        deltas, self._deltas = self._deltas, []
        return deltas

    def close(self) -> list[Delta]:
        """What was held back: text that only looked like the beginning of a marker."""
        if self.finished:
            return []
        if self._block is not None:
            self._deltas += self._block.close()
            self._emit("content", self._block.unshown + self._block.unread)
        elif self._step != self._after_block:
            self._emit("reasoning" if self._step == self._reasoning else "content", self._text)
        self._text = ""
        deltas, self._deltas = self._deltas, []
        return deltas

    def _emit(self, kind: str, text: str) -> None:
        if text:
            self._deltas.append(
                Delta(kind="reasoning" if kind == "reasoning" else "content", text=text)
            )

    def _until(self, kind: str, markers: list[str]) -> str | None:
        """Emit text up to the first marker and return it, or all that can be none of them."""
        found = min(
            ((at, marker) for marker in markers if (at := self._text.find(marker)) >= 0),
            default=None,
        )
        if found is not None:
            at, marker = found
            self._emit(kind, self._text[:at])
            self._text = self._text[at + len(marker) :]
            return marker
        keep = max((partial_suffix(self._text, marker) for marker in markers), default=0)
        self._emit(kind, self._text[: len(self._text) - keep])
        self._text = self._text[len(self._text) - keep :]
        return None

    def _reasoning(self) -> bool:
        end = self._spec.think_end
        marker = self._until("reasoning", [end, self._opening] if self._tools else [end])
        if marker is None:
            return False
        if marker == end:
            self._step = self._content
        else:
            self._open_block(marker)
        return True

    def _content(self) -> bool:
        separated = self._spec.calls.after_text + self._opening
        marker = self._until("content", [separated, self._opening] if self._tools else [])
        if marker is None:
            return False
        self._open_block(marker)
        return True

    def _open_block(self, opening: str) -> None:
        self._block = ToolBlock(
            self._spec.dsml, opening, first_call=self.calls, max_calls=self._max_calls
        )
        self._step = self._in_block

    def _in_block(self) -> bool:
        block = self._block
        if block is None:  # only `_open_block` leads here
            return False
        self._deltas += block.feed(self._text)
        self._text = ""
        self.calls = block.calls
        if block.closed:
            self._block = None
            self._text = block.unread
            self._step = self._after_block
            self.finished = self.calls == self._max_calls
        elif block.malformed:
            self._block = None
            self._emit("content", block.unshown)
            self._text = block.unread
            self._step = self._content
        return self._block is None

    def _after_block(self) -> bool:
        self._text = self._text.lstrip()
        if self._text:
            self._step = self._content
        return bool(self._text)
