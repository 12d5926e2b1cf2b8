"""How likely each kind of decision sees damage of a size, by the decision functions themselves.

    python -m benchmarks.power_curves

Writes benchmarks/results/power.json, docs/power.svg and the table of docs/power.md. Nothing is
simulated: every possible count is decided by the real function, and weighted by its probability.
"""

import argparse
import bisect
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path

from fidelity.records import Trial
from fidelity.verdicts.decisions import Claim, noninferior_finding, rate_finding
from fidelity.verdicts.opened import CLASS_THRESHOLD, CLASS_TRIALS, OpenedClass
from fidelity.words import Outcome

ROOT = Path(__file__).resolve().parents[1]
CLAIM = Claim(id="s/c", suite="s", title="c")
BY_CHANCE = 0.02
"""Pairs that are right in the treated arm only, whatever is damaged."""
MOST_BY_CHANCE = 8
"""Gained pairs; more are rarer than one in a million."""
POWER = 0.8
STEPS = 50
INK, GRID, PAPER = "#1f2933", "#d9dee4", "#ffffff"
COLOURS = ("#0b6e99", "#c2410c", "#4d7c0f", "#7e3fa0", "#8a6d1a")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results/power.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    panels = [rates(), pairs(), classes(), every_one()]
    options.results.write_text(json.dumps({"panels": panels}, indent=1) + "\n")
    (options.docs / "power.svg").write_text(chart(panels), encoding="utf-8")
    path = options.docs / "power.md"
    head = (
        path.read_text(encoding="utf-8").partition("<!-- figures -->")[0] if path.exists() else ""
    )
    path.write_text(f"{head}<!-- figures -->\n{table(panels)}", encoding="utf-8")


# ---- decisions


def counted(right: int, n: int, arm: str = "") -> list[Trial]:
    return [
        Trial(id=f"{arm}{i}", claim="c", suite="s", probe="p", arm=arm, key=str(i), ok=i < right)
        for i in range(n)
    ]


@functools.cache
def rate_fails(right: int, n: int, threshold: float) -> bool:
    made = rate_finding(CLAIM, counted(right, n), threshold, title="c")
    return made.outcome is Outcome.FAIL


@functools.cache
def pairs_fail(lost: int, gained: int, n: int, margin: float) -> bool:
    treated = [
        Trial(id=f"t{i}", claim="c", suite="s", probe="p", key=str(i), ok=i >= lost)
        for i in range(n)
    ]
    control = counted(n - gained, n, "control")
    return noninferior_finding(CLAIM, treated, control, margin, title="c").outcome is Outcome.FAIL


@functools.cache
def class_fails(right: int, pool: int) -> bool:
    clean = counted(pool, pool)
    opened = OpenedClass(
        name="residue_64=3",
        threshold=CLASS_THRESHOLD,
        trials=tuple(counted(right, CLASS_TRIALS, "fresh")),
        stage_one=tuple(clean),
    )
    made = rate_finding(CLAIM, [*clean, *counted(0, 1, "miss")], 0.80, title="c", opened=[opened])
    return made.outcome is Outcome.FAIL


def binomial(k: int, n: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@functools.cache
def most_right(n: int, threshold: float) -> int:
    """Return the first count of right trials that does not fail; below it all do."""
    return bisect.bisect_left(range(n + 1), x=True, key=lambda k: not rate_fails(k, n, threshold))


@functools.cache
def fewest_lost(gained: int, n: int, margin: float) -> int:
    """Return the first count of lost pairs that fails; above it all do."""
    most = n - gained + 1
    return bisect.bisect_left(range(most), x=True, key=lambda k: pairs_fail(k, gained, n, margin))


def rate_power(n: int, threshold: float, rate: float) -> float:
    return sum(binomial(k, n, rate) for k in range(most_right(n, threshold)))


def pair_power(n: int, margin: float, loss: float) -> float:
    lost_share = min(1 - BY_CHANCE, loss + BY_CHANCE)
    total = 0.0
    for gained in range(min(n, MOST_BY_CHANCE) + 1):
        weight = binomial(gained, n, BY_CHANCE)
        rest = n - gained
        share = lost_share / (1 - BY_CHANCE)
        first = fewest_lost(gained, n, margin)
        total += weight * sum(binomial(k, rest, share) for k in range(first, rest + 1))
    return total


def class_power(in_pool: int, share: float) -> float:
    """One class is damaged in that share of its requests; the pool holds so many of them."""
    opened = 1 - (1 - share) ** in_pool
    fresh = sum(
        binomial(k, CLASS_TRIALS, 1 - share)
        for k in range(CLASS_TRIALS + 1)
        if class_fails(k, 64 - in_pool)
    )
    return opened * fresh


# ---- panels


def curve(label: str, power: Callable[[float], float], xs: list[float]) -> dict[str, object]:
    points = [(round(x, 4), round(power(x), 5)) for x in xs]
    fine = [i / 1000 for i in range(1001)]
    at = bisect.bisect_left(fine, x=True, key=lambda x: power(x) >= POWER)
    seen = fine[at] if at < len(fine) else None
    return {"label": label, "points": points, "seen_with_80_percent": seen}


def grid(last: float = 1.0) -> list[float]:
    return [last * i / STEPS for i in range(STEPS + 1)]


def rates() -> dict[str, object]:
    kinds = ((14, 0.80), (22, 0.80), (64, 0.80), (59, 0.95), (256, 0.95))
    curves = [
        curve(f"{n} trials, >= {t:.2f}", lambda x, n=n, t=t: rate_power(n, t, 1 - x), grid())
        for n, t in kinds
    ]
    return {
        "title": "a rate: how often requests are wrong",
        "x": "share of requests that come out wrong",
        "curves": curves,
    }


def pairs() -> dict[str, object]:
    kinds = ((18, 0.20), (48, 0.10), (63, 0.20), (120, 0.10))
    curves = [
        curve(f"{n} pairs, margin {m:.2f}", lambda x, n=n, m=m: pair_power(n, m, x), grid())
        for n, m in kinds
    ]
    return {
        "title": "a comparison: what one arm loses against its control",
        "x": "share of pairs lost (2 % more are lost, and gained, by chance)",
        "curves": curves,
    }


def classes() -> dict[str, object]:
    kinds = ((16, "1 residue of 4"), (4, "1 residue of 16"), (1, "1 residue of 64"))
    curves = [
        curve(f"{words}, pool of 64", lambda x, m=m: class_power(m, x), grid())
        for m, words in kinds
    ]
    return {
        "title": "one damaged class: a miss opens 22 fresh probes",
        "x": "share of this class's requests that come out wrong",
        "curves": curves,
    }


def every_one() -> dict[str, object]:
    curves = [
        curve(f"{n} observations", lambda x, n=n: 1 - (1 - x) ** n, grid(0.5))
        for n in (10, 18, 60, 400)
    ]
    return {
        "title": "every one must hold: conformance, leaks, scripts (10, 60, 400)",
        "x": "share of requests, or of scripts, that are damaged",
        "curves": curves,
    }


# ---- chart and table

WIDE, HIGH, LEFT, TOP = 520, 300, 56, 40


def chart(panels: list[dict[str, object]]) -> str:
    width, height = 2 * (WIDE + 40) + 20, 2 * (HIGH + 120)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" font-family="system-ui, sans-serif" font-size="13" role="img"'
            ' aria-label="Chance that a claim fails, by the size of the damage">'
        ),
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    for index, panel in enumerate(panels):
        x, y = (index % 2) * (WIDE + 40) + 10, (index // 2) * (HIGH + 120) + 10
        parts.append(f'<g transform="translate({x} {y})">{drawn(panel)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def drawn(panel: dict[str, object]) -> str:
    curves = panel["curves"]
    assert isinstance(curves, list)
    last = max(x for c in curves for x, _ in c["points"])
    inner_w, inner_h = WIDE - LEFT - 10, HIGH - TOP

    def px(x: float) -> float:
        return round(LEFT + inner_w * x / last, 1)

    def py(y: float) -> float:
        return round(TOP + inner_h * (1 - y), 1)

    out = [f'<text x="{LEFT}" y="20" font-weight="600" fill="{INK}">{panel["title"]}</text>']
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        dash = ' stroke-dasharray="4 3" stroke-width="1.5"' if tick == POWER else ""
        out.append(
            f'<line x1="{LEFT}" x2="{LEFT + inner_w}" y1="{py(tick)}" y2="{py(tick)}"'
            f' stroke="{GRID}"{dash}/>'
            f'<text x="{LEFT - 8}" y="{py(tick) + 4}" text-anchor="end" fill="{INK}">'
            f"{tick:.1f}</text>"
        )
        out.append(
            f'<text x="{px(tick * last)}" y="{TOP + inner_h + 18}" text-anchor="middle"'
            f' fill="{INK}">{tick * last:.1f}</text>'
        )
    out.append(
        f'<text x="{LEFT + inner_w / 2}" y="{TOP + inner_h + 38}" text-anchor="middle"'
        f' fill="{INK}">{panel["x"]}</text>'
    )
    for index, item in enumerate(curves):
        colour = COLOURS[index]
        path = " ".join(f"{px(x)},{py(y)}" for x, y in item["points"])
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        row, column = divmod(index, 2)
        x, y = LEFT + column * 230, TOP + inner_h + 60 + row * 18
        label = str(item["label"]).replace(">=", "≥")
        out.append(
            f'<rect x="{x}" y="{y - 9}" width="18" height="4" fill="{colour}"/>'
            f'<text x="{x + 26}" y="{y}" fill="{INK}">{label}</text>'
        )
    return "".join(out)


def table(panels: list[dict[str, object]]) -> str:
    lines = ["| decision | fails with chance 80 % when | with no damage |", "|---|---|---|"]
    for panel in panels:
        lines.append(f"| **{panel['title']}** | | |")
        curves = panel["curves"]
        assert isinstance(curves, list)
        for item in curves:
            seen = item["seen_with_80_percent"]
            words = "never: too few" if seen is None else f"{seen:.1%} are damaged"
            lines.append(f"| {item['label']} | {words} | {item['points'][0][1]:.2%} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
