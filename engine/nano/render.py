"""Conversations to token ids: documents are filled so that a sample takes its whole row."""

from engine.nano.chat import CONTEXT, Conversation, Document
from engine.nano.filler import LINE_FORMATS, Sentence, boilerplate, sentence
from engine.nano.names import Rng
from engine.nano.tokens import Encoder

Row = tuple[list[int], list[int]]  # ids, loss weight of each

# what the number and the format of a planted line may add to its own tokens; a bare line adds one
_LINE_MARGIN = 9
_BARE_MARGIN = 1
_BATCH_LINES = 32


def render(conversation: Conversation, encoder: Encoder, rng: Rng, budget: int) -> Row | None:
    """Ids and weights, at most `budget` of them; None when the fixed text alone is longer."""
    parts = conversation.parts()
    fixed = [encoder.encode(p) if isinstance(p, str) else [] for p, _ in parts]
    documents = [part for part, _ in parts if isinstance(part, Document)]
    room = budget - sum(map(len, fixed)) - sum(_own_tokens(d, encoder) for d in documents)
    if room < 0:
        return None
    shares = sum(d.share for d in documents) or 1.0
    ids: list[int] = []
    weights: list[int] = []
    for (part, weight), known in zip(parts, fixed, strict=True):
        new = known
        if isinstance(part, Document):
            new = fill(part, encoder, rng, int(room * part.share / shares))
        ids += new
        weights += [weight if isinstance(part, str) else CONTEXT] * len(new)
    return ids, weights


def _own_tokens(document: Document, encoder: Encoder) -> int:
    margin = _BARE_MARGIN if document.line_format == "{s}" else _LINE_MARGIN
    own = sum(len(encoder.encode(text)) + margin for _, text in document.planted)
    above = margin if document.headings_numbered else _BARE_MARGIN
    own += sum(len(encoder.encode(text)) + above for _, text in document.headings)
    return own + len(encoder.encode(document.opening)) + 1  # prose ends with a newline


def fill(document: Document, encoder: Encoder, rng: Rng, budget: int) -> list[int]:
    """Ids of the document with about `budget` tokens of filler around its planted statements."""
    line_format = document.line_format
    source: Sentence = sentence
    if line_format is None:
        line_format = rng.choice(LINE_FORMATS) if rng.random() < 0.8 else ""
        source = boilerplate(rng) if rng.random() < 0.2 else sentence
    if document.filler is not None:
        repeated = document.filler
        source = lambda _: repeated  # noqa: E731 - a constant source
    lines = _filler_lines(encoder, rng, budget, line_format, source)
    bare = rng.random() < 0.5 and document.line_format is None
    # by depth, a heading before what it heads; equal depths keep their order
    spots = [(depth, n, text, False) for n, (depth, text) in enumerate(document.planted)]
    spots += [(depth, -1, text, True) for depth, text in document.headings]
    filled = len(lines)
    for depth, _, text, heading in sorted(spots, key=lambda spot: spot[:2], reverse=True):
        at = round(depth * filled)
        alone = not document.headings_numbered if heading else bare and bool(line_format)
        shape = "{s}" if alone else line_format
        lines.insert(at, encoder.encode(_line(shape, at + 1, text)))
    if not line_format:
        lines.append(encoder.encode("\n"))
    return encoder.encode(document.opening) + [i for line in lines for i in line]


def _line(line_format: str, number: int, text: str) -> str:
    return line_format.format(i=number, s=text) + "\n" if line_format else " " + text


def _filler_lines(
    encoder: Encoder, rng: Rng, budget: int, line_format: str, source: Sentence
) -> list[list[int]]:
    lines: list[list[int]] = []
    total = 0

    while total < budget:
        for _ in range(_BATCH_LINES):
            line = encoder.encode(_line(line_format, len(lines) + 1, source(rng)))
            total += len(line)
            if total > budget:
                return lines
            lines.append(line)
    return lines
