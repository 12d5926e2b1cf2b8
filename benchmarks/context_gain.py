"""Context gain against exact recall: do they agree, and how many trials does each need?

    python -m benchmarks.context_gain --out benchmarks/results/context-gain.json

The same facts are asked in two ways, "what is the code?" (exact recall, greedy) and by the gain of
the right answer (`fidelity.gain`), in requests of the same number of tokens, of the healthy engine
and of damaged ones. Trials needed: the fewest facts that convict a damaged engine beside the
healthy one, on the same facts, with chance 80 % at 5 %, one-sided: exact McNemar for recall, the
sign test and Wilcoxon's signed ranks for the difference in gain (beyond rounding), by drawing facts
with replacement from those measured.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from scipy.special import bdtr, ndtr
from scipy.stats import rankdata

from fidelity.checks.recall import needle_probe
from fidelity.config.settings import resolve
from fidelity.deployment.deployment import Deployment, open_deployment
from fidelity.gain.reading import Reading, gain_probe, sweep
from fidelity.probes.probe import Ask
from fidelity.statistics.divergence import rounding_bound

ROWS = {256: 20, 512: 20, 1_024: 20}
ARMS: dict[str, list[str]] = {
    "healthy": [],
    "attention_mod4": ["--fault=attention_mod4"],
    "index keys int4, outlier 64, top-k 64": [
        "--patch=index_keys=int4",
        "--index-outlier=64",
        "--patch=index_topk=64",
    ],
    "index keys int4, outlier 256, top-k 64": [
        "--patch=index_keys=int4",
        "--index-outlier=256",
        "--patch=index_topk=64",
    ],
}
BOUND_NATS = rounding_bound("float32")
ALPHA, POWER, DRAWS, MOST = 0.05, 0.8, 1_000, 200


def main() -> None:
    options = _parser().parse_args()
    began = time.monotonic()
    arms = {name: anyio.run(_arm, launch) for name, launch in ARMS.items()}
    record = {
        "what": "context gain against exact recall, same contexts",
        "command": ["python", "-m", "benchmarks.context_gain", *sys.argv[1:]],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
        "seconds": round(time.monotonic() - began, 1),
        "bound_nats": BOUND_NATS,
        "rows": ROWS,
        "launch": ARMS,
        "agreement": {name: _agreement(trials) for name, trials in arms.items()},
        "trials_needed": {
            name: _needed(arms["healthy"], trials)
            for name, trials in arms.items()
            if name != "healthy"
        },
        "trials": arms,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name in arms:
        print(f"{name}: {record['agreement'][name]} {record['trials_needed'].get(name, '')}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    return parser


async def _arm(launch: Sequence[str]) -> list[dict[str, Any]]:
    settings = resolve({"deployment": "embedded", "launch_arg": list(launch)})
    deployment = await open_deployment(settings, run_dir=None)
    try:
        readings = sweep(seed="bench", rows=ROWS, both_ways_tokens=0, bound_nats=BOUND_NATS)
        return [await _both(deployment, reading) for reading in readings]
    finally:
        await deployment.aclose()


async def _both(deployment: Deployment, reading: Reading) -> dict[str, Any]:
    """Return one context measured in both ways."""
    gain = await gain_probe(reading).script(Ask(deployment.client))
    asked = needle_probe(
        seed=reading.seed,
        row_tokens=reading.row_tokens,
        prompt_tokens=reading.tokens,
        depth_frac=reading.depth_frac,
        kind=reading.kind,
    )
    recall = await asked.script(Ask(deployment.client))
    return {
        **dict(asked.cell),
        "right": recall.ok,
        "gain_nats": gain.value,
        "gains": gain.ok,
    }


def _agreement(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts = {
        f"{'right' if right else 'wrong'}, {'gain' if gains else 'no gain'}": sum(
            t["right"] is right and t["gains"] is gains for t in trials
        )
        for right in (True, False)
        for gains in (True, False)
    }
    nats = [t["gain_nats"] for t in trials]
    return {
        **counts,
        "recall": sum(bool(t["right"]) for t in trials) / len(trials),
        "mean_gain_nats": round(sum(nats) / len(nats), 2),
        "mean_gain_of_right": _mean([t["gain_nats"] for t in trials if t["right"]]),
        "mean_gain_of_wrong": _mean([t["gain_nats"] for t in trials if not t["right"]]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 2) if values else None


def _needed(healthy: Sequence[dict[str, Any]], damaged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    pairs = list(zip(healthy, damaged, strict=True))
    recall = np.array([float(bool(h["right"])) - float(bool(d["right"])) for h, d in pairs])
    gain = np.array([h["gain_nats"] - d["gain_nats"] for h, d in pairs])
    gain[np.abs(gain) <= BOUND_NATS] = 0.0
    return {
        "exact recall, McNemar": _fewest(recall, _sign_test),
        "context gain, sign test": _fewest(gain, _sign_test),
        "context gain, signed ranks": _fewest(gain, _signed_ranks),
    }


def _fewest(differences: np.ndarray, test: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """Return the fewest facts that convict with chance POWER; None: more than MOST."""
    draw = np.random.default_rng(0)
    for n in range(5, MOST + 1):
        drawn = draw.choice(differences, size=(DRAWS, n))
        if (test(drawn) < ALPHA).mean() >= POWER:
            return n
    return None


def _sign_test(drawn: np.ndarray) -> np.ndarray:
    """Return the exact one-sided p-value of each row: losses against gains."""
    lost, gained = (drawn > 0).sum(axis=1), (drawn < 0).sum(axis=1)
    return np.where(lost + gained > 0, bdtr(gained, lost + gained, 0.5), 1.0)


def _signed_ranks(drawn: np.ndarray) -> np.ndarray:
    """Return Wilcoxon's one-sided p-value of each row: zeros ranked and dropped (Pratt), normal."""
    ranks = rankdata(np.abs(drawn), axis=1) * (drawn != 0)
    lost = (ranks * (drawn > 0)).sum(axis=1)
    spread = np.sqrt((ranks**2).sum(axis=1) / 4)
    z = np.where(spread > 0, (lost - ranks.sum(axis=1) / 2 - 0.5) / np.maximum(spread, 1e-9), 0.0)
    return ndtr(-z)


if __name__ == "__main__":
    main()
