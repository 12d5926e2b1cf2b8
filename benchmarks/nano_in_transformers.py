"""Does a nano checkpoint recall in `transformers`, which knows nothing of this project?

    python -m benchmarks.nano_in_transformers FOLDER [--tokens 256 1024] [--precision fp32]

One needle at each of five depths of every length, greedy, on the CPU, with the library's own cache,
in a process that cannot see this checkout. An answer is right when all its tokens are, its end
included. Counts go into FOLDER/results.json, where there is one, and from there onto the card.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from engine.nano.card import RESULTS_FILE, RUN_FILE, write_card
from engine.nano.catalogue import DEPTHS
from engine.nano.config import NANO
from engine.nano.evalsets import Item, build, needle
from engine.nano.tokens import Encoder

SCRIPT = Path(__file__).with_name("transformers_greedy.py")
LENGTHS = (256, 1024, 4096)
PRECISIONS = ("fp32", "bf16")
# of an answer that does not end where it should
_MORE_TOKENS = 4


class Answer(NamedTuple):
    """Token ids, each with the end of the answer."""

    expected: list[int]
    given: list[int]

    @property
    def right(self) -> bool:
        """Whether every token is as expected, the end included."""
        return self.given == self.expected


def questions(folder: Path, tokens: int) -> list[Item]:
    """One needle at each depth of a document of so many tokens; always the same."""
    encoder = Encoder.load(folder)
    return [
        build(needle(tokens, depth), encoder, 1, f"transformers {tokens} {depth}")[0]
        for depth in DEPTHS
    ]


def ask(folder: Path, items: list[Item], precision: str) -> list[Answer]:
    """What `transformers` answers.

    Raises:
        RuntimeError: its process failed; the end of its stderr.
    """
    prompts = [(item.ids[: item.start], item.end - item.start + _MORE_TOKENS) for item in items]
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch)
        (at / "in.json").write_text(json.dumps(prompts), encoding="utf-8")
        # An empty environment: no PYTHONPATH that could lead back into the checkout.
        done = subprocess.run(
            [sys.executable, "-P", SCRIPT, folder.resolve(), "in.json", "out.json", precision],
            cwd=at,
            env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": scratch},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        given = json.loads((at / "out.json").read_text(encoding="utf-8"))
    return [
        Answer(item.ids[item.start : item.end], new) for item, new in zip(items, given, strict=True)
    ]


def main() -> None:
    options = _parser().parse_args()
    counts: dict[str, dict[str, list[int]]] = {}
    for tokens in options.tokens:
        items = questions(options.folder, tokens)
        for precision in options.precision:
            began = time.monotonic()
            right = sum(answer.right for answer in ask(options.folder, items, precision))
            counts.setdefault(str(tokens), {})[precision] = [right, len(items)]
            took = time.monotonic() - began
            print(
                f"{tokens} tokens, {precision}: {right} of {len(items)}, {took:.0f} s", flush=True
            )
    record(options.folder, counts)


def record(folder: Path, counts: dict[str, dict[str, list[int]]]) -> None:
    """Add the counts to results.json and print the card again; neither where it is not there."""
    path = folder / RESULTS_FILE
    if not path.exists():
        print(f"not recorded: {path} does not exist")
        return
    results = json.loads(path.read_text(encoding="utf-8"))
    table = results.setdefault("transformers", {})
    for tokens, row in counts.items():
        table.setdefault(tokens, {}).update(row)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if (folder / RUN_FILE).exists():
        write_card(folder, NANO)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    return parser


if __name__ == "__main__":
    main()
