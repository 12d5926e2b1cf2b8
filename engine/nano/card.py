"""The checkpoint's README.md: how it was made and what was measured, from results.json alone."""

import json
from pathlib import Path
from typing import Any

from engine.nano.catalogue import DEPTHS
from engine.nano.config import NanoConfig
from engine.nano.export import read_tensors

CARD_FILE = "README.md"
RESULTS_FILE = "results.json"
RUN_FILE = "run.json"

_INTRODUCTION = """# The {name} checkpoint

A DeepSeek-V4 of {parameters:,} parameters that recalls facts, trained in this project from its own
generator (`engine/nano`). It is a test instrument: it answers questions about the text in its
context, and knows next to nothing else. No text, weights or tokenizer of any other model went in.
Licence: Apache-2.0, as the repository.

Made by

    {command}

on one {device}: {steps:,} steps, {tokens_m:.0f} M tokens, {minutes:.1f} minutes of training in
{legs} leg(s): the same command, once for each.{remark}

Layers {layers} (S sliding, window {window}; H one entry for {hca} tokens; C one for {csa}),
{index_heads} index heads, the best {topk} entries are read. RMS epsilon {rms_eps}, mixing epsilon
{hc_eps}; YaRN from {yarn} positions, x {factor:g}, so that its absence shows at once.

Every figure is the share of answers in which each token is the most likely one (teacher-forced,
which equals greedy decoding). The owners of needles, the names of people and the pages are held
out from training. "told: ..." is one needle in sentences of one kind (`families/wording.py`); the
two unseen kinds tell and ask in words that training never used. Weights as stored (bf16), computed
by the trainer's forward in bf16; `tests/engine/nano/test_parity.py` holds that forward against
`transformers`.

What it is not: a language model for any use but testing this project, or a measure of what
DeepSeek-V4 can do. Under faults it may deny: "I do not know." is an answer that it was taught.
"""


def write_card(folder: Path, config: NanoConfig) -> Path:
    """Write README.md into a folder with results.json and run.json; returns its path."""
    results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    parameters = sum(v.numel() for v in read_tensors(folder).values() if v.is_floating_point())
    parts = [
        _INTRODUCTION.format(
            name=folder.name,
            parameters=parameters,
            **run,
            layers=config.layers,
            window=config.window,
            hca=config.hca_rate,
            csa=config.csa_rate,
            index_heads=config.index_heads,
            topk=config.index_topk,
            rms_eps=config.rms_eps,
            hc_eps=config.hc_eps,
            yarn=config.yarn_original,
            factor=config.yarn_factor,
        ),
        _needles(results),
        *([_transformers(results)] if "transformers" in results else []),
        _sets(results),
        _reach(results),
        _faults(results),
    ]
    path = folder / CARD_FILE
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _share(value: float) -> str:
    return "1" if value == 1 else f"{value:.3f}".removeprefix("0")


def _needles(results: dict[str, Any]) -> str:
    grids: dict[str, dict[str, list[float]]] = results["needle"]
    shipped = grids["as shipped"]
    rows = [[tokens, *map(_share, row)] for tokens, row in shipped.items()]
    first = _table(["tokens", *(f"depth {depth:g}" for depth in DEPTHS)], rows)
    rows = [
        [name, *(_share(sum(row) / len(row)) for row in grid.values())]
        for name, grid in grids.items()
    ]
    second = _table(["reading", *shipped], rows)
    far = ", ".join(f"depth {d}: {_share(v)}" for d, v in results["needle at 16384"].items())
    return (
        f"## One needle\n\nAs shipped, 60 a cell:\n\n{first}\n"
        f"At 16,384 tokens (20 a depth): {far}.\n\n"
        "All depths together (20 a cell, the first row 60), by what is read and how the index "
        f"keys are stored:\n\n{second}"
    )


def _transformers(results: dict[str, Any]) -> str:
    table: dict[str, dict[str, list[int]]] = results["transformers"]
    precisions = sorted({name for row in table.values() for name in row}, reverse=True)
    rows = [
        [tokens, *("{} of {}".format(*row[name]) if name in row else "" for name in precisions)]
        for tokens, row in table.items()
    ]
    return (
        "## In `transformers`\n\nOne needle at each depth, greedy, on a CPU, by "
        "`python -m benchmarks.nano_in_transformers`:\n\n" + _table(["tokens", *precisions], rows)
    )


def _sets(results: dict[str, Any]) -> str:
    rows = []
    for name, readings in results["sets"].items():
        shipped = readings["as shipped"]
        rows.append([name, ", ".join(f"{tokens}: {_share(v)}" for tokens, v in shipped.items())])
    return f"## Everything else, as shipped\n\n{_table(['set', 'tokens: share'], rows)}"


def _reach(results: dict[str, Any]) -> str:
    parts = []
    for form, widths in results["reach"].items():
        lengths = list(next(iter(widths.values())))
        rows = [[width, *map(_share, row.values())] for width, row in widths.items()]
        parts.append(f"Keys {form}:\n\n" + _table(["entries read", *lengths], rows))
    return (
        "## Reach of a damaged index\n\nA needle in the first line (20 a cell). `outlier256:int4`: "
        "one channel of the index keys is 256 times larger when a row is rounded to int4.\n\n"
        + "\n".join(parts)
    )


def _faults(results: dict[str, Any]) -> str:
    table: dict[str, dict[str, float]] = results["faults"]
    columns = list(next(iter(table.values())))
    rows = [
        [name, *(f"{v:.5f}" if "KL" in key else _share(v) for key, v in row.items())]
        for name, row in table.items()
    ]
    return (
        "## How far a fault shows\n\nRecall (30 a cell) and the KL divergence to the healthy model "
        "over 8 documents of 4,096 tokens. The first rows are harmless rounding.\n\n"
        + _table(["fault", *columns], rows)
    )
