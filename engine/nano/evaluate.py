"""Measures a checkpoint and writes what the card prints: results.json beside the weights."""

import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.nano.card import RESULTS_FILE
from engine.nano.catalogue import BETWEEN, DEPTHS, LENGTHS, catalogue
from engine.nano.config import NanoConfig
from engine.nano.evalsets import Item, build
from engine.nano.export import read_tensors
from engine.nano.fused_check import check_fused
from engine.nano.mode import FAULTS, Mode
from engine.nano.scoring import exact, log_shares, stack
from engine.nano.tokens import Encoder
from engine.nano.twin import Twin
from engine.nano.weights import Weights

Sets = dict[tuple[str, int], list[Item]]
Say = Callable[[str], None]

REACH_LENGTHS = tuple(sorted((*LENGTHS, *BETWEEN)))
REACH_WIDTHS = (16, 32, 64, 128, 256, 512, 1024)
PRECISIONS = ("fp8", "fp4", "int4")
_FAULT_ITEMS = 30
_KL_ITEMS = 8


class Evaluation:
    """All measurements of one checkpoint; each adds to `results`."""

    def __init__(self, folder: Path, config: NanoConfig, say: Say, *, processes: int = 12) -> None:
        self._say = say
        self.results: dict[str, Any] = {}
        begun = time.monotonic()
        self.sets = _build_sets(folder, processes)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        torch.set_float32_matmul_precision("high")
        weights = Weights(config, read_tensors(folder), dtype).to(device)
        fused = check_fused(device, config.hidden, config.hc_eps).ok
        self.twin = Twin(weights, fused=fused)
        self.default = Mode(topk=config.index_topk)
        tokens = sum(len(item.ids) for items in self.sets.values() for item in items)
        say(f"{len(self.sets)} sets, {tokens / 1e6:.1f} M tokens, {time.monotonic() - begun:.1f} s")

    def rate(self, key: tuple[str, int], mode: Mode, items: int | None = None) -> float:
        """Share of exact answers in one set."""
        found = exact(self.twin, self.sets[key][:items], mode)
        return sum(found) / len(found)

    def grid(self, title: str, mode: Mode, items: int | None = None) -> None:
        """One needle, length x depth."""
        table = {}
        for tokens in LENGTHS:
            row = [self.rate((f"needle {depth}", tokens), mode, items) for depth in DEPTHS]
            table[str(tokens)] = row
            self._say(f"needle, {title}, {tokens}: " + " ".join(f"{x:.3f}" for x in row))
        pooled = sum(map(sum, table.values())) / (len(LENGTHS) * len(DEPTHS))
        self._say(f"needle, {title}: pooled {pooled:.4f}")
        self.results.setdefault("needle", {})[title] = table

    def others(self, title: str, mode: Mode, items: int | None = None) -> None:
        """Every set that is not the needle grid."""
        names = dict.fromkeys(name for name, _ in self.sets if not name.startswith("needle"))
        for name in names:
            lengths = sorted(tokens for known, tokens in self.sets if known == name)
            row = {str(tokens): self.rate((name, tokens), mode, items) for tokens in lengths}
            self._say(f"{name}, {title}: " + " ".join(f"{k}:{v:.3f}" for k, v in row.items()))
            self.results.setdefault("sets", {}).setdefault(name, {})[title] = row

    def far(self) -> None:
        """One needle at 16,384 tokens."""
        row = {str(d): self.rate((f"needle {d}", 16384), self.default) for d in (0.0, 0.5, 1.0)}
        self._say("needle, 16384: " + " ".join(f"{k}:{v:.3f}" for k, v in row.items()))
        self.results["needle at 16384"] = row

    def reach(self, form: str, widths: tuple[int, ...] = REACH_WIDTHS) -> None:
        """Recall of the first line by length, for each number of entries that may be read."""
        for width in widths:
            mode = Mode(topk=width, index_keys=None if form == "bf16" else form)
            row = {
                str(tokens): self.rate(("needle 0.0", tokens), mode, 20) for tokens in REACH_LENGTHS
            }
            self._say(
                f"reach, {form}, top {width}: " + " ".join(f"{k}:{v:.2f}" for k, v in row.items())
            )
            self.results.setdefault("reach", {}).setdefault(form, {})[str(width)] = row

    def faults(self, names: tuple[str, ...] = FAULTS) -> None:
        """How far each deliberate fault shows: in recall, and as KL to the healthy model."""
        arms = {"healthy": self.default, "bf16 mixing": replace(self.default, bf16_mixing=True)}
        arms |= {f"{p} keys": replace(self.default, index_keys=p) for p in PRECISIONS}
        arms |= {name: replace(self.default, fault=name) for name in names}
        items = self.sets["8 needles", 4096][: _KL_ITEMS // 2]
        items = items + self.sets["4 sections", 4096][: _KL_ITEMS // 2]
        ids = stack(items, self.twin.weights.device)
        text = ids != 2
        healthy = log_shares(self.twin, ids, self.default)
        for name, mode in arms.items():
            recall = {
                f"{kind} {tokens}": self.rate((kind, tokens), mode, _FAULT_ITEMS)
                for kind in ("8 needles", "4 sections")
                for tokens in (1024, 4096)
            }
            found = log_shares(self.twin, ids, mode)
            kl = (healthy.exp() * (healthy - found)).sum(-1)[text]
            row = recall | {"mean KL": kl.mean().item(), "max KL": kl.max().item()}
            self._say(f"fault, {name}: " + " ".join(f"{k} {v:.5f}" for k, v in row.items()))
            self.results.setdefault("faults", {})[name] = row

    def save(self, path: Path) -> None:
        """Write the results."""
        path.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")


def _build_sets(folder: Path, processes: int) -> Sets:
    keys = sorted(catalogue(), key=lambda key: -key[1])
    if processes == 1:
        return {key: _build_one((folder, key)) for key in keys}
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        built = pool.map(_build_one, [(folder, key) for key in keys], chunksize=1)
    return dict(zip(keys, built, strict=True))


def _build_one(job: tuple[Path, tuple[str, int]]) -> list[Item]:
    folder, key = job
    maker, count = catalogue()[key]
    return build(maker, Encoder.load(folder), count, f"{key[0]} {key[1]}")


def evaluate(folder: Path, config: NanoConfig, say: Say, *, parts: str = "all") -> None:
    """Run parts of the card ("core", "faults", "reach", "keys", or "all") and save the results."""
    evaluation = Evaluation(folder, config, say)
    wanted = tuple(_PARTS) if parts == "all" else tuple(parts.split(","))
    for part in wanted:
        _PARTS[part](evaluation)
        evaluation.save(folder / RESULTS_FILE)


def _core(evaluation: Evaluation) -> None:
    evaluation.grid("as shipped", evaluation.default)
    evaluation.others("as shipped", evaluation.default)
    evaluation.far()


def _reach(evaluation: Evaluation) -> None:
    evaluation.reach("outlier256:int4")
    evaluation.reach("bf16", (16, 32, 1024))


def _keys(evaluation: Evaluation) -> None:
    evaluation.grid("dense", Mode(), 20)
    for form in PRECISIONS:
        evaluation.grid(f"{form} keys", replace(evaluation.default, index_keys=form), 20)
    for width in (64, 16, 8, 4):
        evaluation.grid(f"top {width}", Mode(topk=width), 20)
    evaluation.others("dense", Mode(), 40)


_PARTS: dict[str, Callable[[Evaluation], None]] = {
    "core": _core,
    "faults": lambda evaluation: evaluation.faults(),
    "reach": _reach,
    "keys": _keys,
}
