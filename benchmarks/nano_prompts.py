"""Long prompts of a checkpoint: numbered lines with one fact among them, asked and answered."""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.figures import PAGE
from reference.encoding import render
from reference.encoding_constants import read_constants
from reference.model import Model
from reference.tokenizer import Tokenizer
from suites.patches.dumped_layers import DumpedLayers

NAMES = ("amber", "cobalt", "sienna", "umber", "violet", "ochre", "teal")
VALUE = "48213"
FACT, QUESTION = (
    f"The code of the amber lantern is {VALUE}.",
    "What is the code of the amber lantern?",
)
DEPTH_FRAC = 0.3
ROWS = 24
"""Tokens of a layer that are examined, spread over the prompt, beside those of the answer."""


class Prompt(NamedTuple):
    """Token ids, the tokens that hold the fact's value, those that answer with it, and layers."""

    ids: Tensor
    told: range
    asked: range
    logits: Tensor
    layers: DumpedLayers

    @property
    def rows(self) -> Tensor:
        """Positions that are examined, int64."""
        spread = torch.linspace(PAGE, self.asked.start - 1, ROWS).long().tolist()
        return torch.tensor(sorted({*spread, *self.asked}))

    @property
    def answered(self) -> bool:
        """Whether each token of the value is the most likely one at its place."""
        before = slice(self.asked.start, self.asked.stop)
        following = self.ids[self.asked.start + 1 : self.asked.stop + 1]
        return bool(torch.equal(self.logits[before].argmax(1), following))


def _chat(lines: int) -> list[dict[str, str]]:
    text = [
        f"{i}. The {NAMES[i * 5 % 7]} gate of hall {i * 37 % 91} opens with {i * 7919 % 9973}."
        for i in range(1, lines)
    ]
    text.insert(int(lines * DEPTH_FRAC), FACT)
    return [{"role": "user", "content": "\n".join([*text, QUESTION])}]


def read_prompt(model: Model, tokens: int) -> Prompt:
    """The longest chat of whole lines with at most so many tokens, and what is computed of it."""
    tokenizer = Tokenizer(model.folder / "tokenizer.json")
    constants = read_constants(model.folder / "encoding.json")
    line = len(tokenizer.encode("7. The violet gate of hall 12 opens with 7919.\n"))
    lines = tokens // line + 8
    text = ""
    ids = list(range(tokens + 1))
    while len(ids) > tokens:
        lines -= max(1, (len(ids) - tokens) // (2 * line))
        text = render(constants, _chat(lines)) + FACT
        ids = tokenizer.encode(text)
    ends = torch.tensor([len(tokenizer.token_bytes(token)) for token in ids]).cumsum(0)
    raw, value = text.encode(), VALUE.encode()

    def holding(begin: int) -> range:
        first, last = (int((ends > at).nonzero()[0]) for at in (begin, begin + len(value) - 1))
        return range(first, last + 1)

    said = holding(raw.rindex(value))
    rows: dict[str, Tensor] = {}
    logits = model.forward(torch.tensor(ids), record=rows.__setitem__)
    return Prompt(
        ids=torch.tensor(ids),
        told=holding(raw.index(value)),
        asked=range(said.start - 1, said.stop - 1),
        logits=logits,
        layers=DumpedLayers(f"{len(ids)} tokens", model, rows, torch.tensor(ids)),
    )
