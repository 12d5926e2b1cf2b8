"""A first look at an unfinished run: recall at short lengths, healthy and with a layer kind dark."""

import sys
from pathlib import Path

from engine.nano import evaluate
from engine.nano.config import PRESETS
from engine.nano.evalsets import in_section
from engine.nano.mode import Mode

_LENGTHS = (256, 512, 1024, 2048)
_SETS = (
    "needle 0.0",
    "8 sections",
    "16 needles",
    "RULER multikey_2",
    "names: page",
    "task: turns",
    "task: pages",
    "task: tools",
    "lists, whole",
    "task: echo",
)


def main() -> None:
    """python -m engine.nano.glance FOLDER."""
    whole = evaluate.catalogue
    short = {("short sections", t): (in_section(t, t // 50), 60) for t in (256, 512, 1024)}
    evaluate.catalogue = lambda: short | {
        key: made for key, made in whole().items() if key[0] in _SETS and key[1] in _LENGTHS
    }
    seen = evaluate.Evaluation(Path(sys.argv[1]), PRESETS["nano"], print)
    for mode in (Mode(), Mode(topk=32), Mode(fault="no CSA entries"), Mode(fault="no HCA entries")):
        rates = {f"{n} {t}": round(seen.rate((n, t), mode, 60), 2) for n, t in sorted(seen.sets)}
        print(mode.topk, mode.fault, rates)


if __name__ == "__main__":
    main()
