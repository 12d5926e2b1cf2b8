"""Golden: how far two deployments lie apart on the same tokens, and where."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fidelity.records import GoldenState
from reports.view_journal import Journal

SUITE = "golden"
_WIDTH, _HEIGHT, _FOOT = 340, 120, 18
_DIVERGENCES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one length, as printed."""

    length: str
    agree: str
    tone: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a drawing: the share in one class."""

    x: float
    y: float
    width: float
    height: float
    label: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Shares by one axis; `name` says of what."""

    name: str
    bars: tuple[Bar, ...]
    width: int = _WIDTH
    height: int = _HEIGHT
    base: int = _HEIGHT - _FOOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """The comparison; without one, only `missing` says why."""

    missing: str
    other: str = ""
    rule: str = ""
    rows: tuple[Row, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    places: tuple[str, ...] = ()
    divergences: tuple[tuple[str, ...], ...] = ()
    more: str = ""


def golden_of(journal: Journal) -> Golden | None:
    """Return the comparison of a run; None where no claim of it could have needed one."""
    manifest = journal.manifest
    profile = next(
        (
            p
            for f in journal.findings
            if f.suite == SUITE and "divergences" in (p := f.profile or {})
        ),
        None,
    )
    if profile is None:
        left_out = [name for name in (manifest.left_out if manifest else {}) if _is_ours(name)]
        if left_out and manifest is not None:
            need = manifest.left_out[left_out[0]]
            return Golden(
                missing=f"{len(left_out)} claims are no part of this run: they need {need}."
            )
        asked = any(f.suite == SUITE for f in journal.findings)
        return Golden(missing="The comparison came to no figures.") if asked else None
    divergences = profile["divergences"]
    return Golden(
        missing="",
        other=_other(manifest.golden if manifest else None),
        rule=(
            f"A token has moved when its logprob, or its lead as the best token, changed by more"
            f" than {profile['bound_nats']:g} nats, what {profile['dtype']} can round; a text"
            f" agrees when no class of its open tokens has significantly more than 5 % moved."
        ),
        rows=tuple(_row(row) for row in profile["lengths"]),
        drawings=(
            _drawing("position", profile["positions"], _octave),
            _drawing("eighth of the text", profile["eighths"], lambda i: str(i + 1)),
            _drawing("position modulo 4", profile["residues"]["4"], str),
            _drawing("position modulo 16", profile["residues"]["16"], str),
            _of_texts("length modulo 4", profile["texts"]["4"]),
            _of_texts("length modulo 16", profile["texts"]["16"]),
        ),
        places=tuple(profile["places"]),
        divergences=tuple(_divergence(item) for item in divergences[:_DIVERGENCES]),
        more=f"and {len(divergences) - _DIVERGENCES} more"
        if len(divergences) > _DIVERGENCES
        else "",
    )


def _is_ours(claim: str) -> bool:
    return claim.partition("/")[0] == SUITE


def _other(golden: GoldenState | None) -> str:
    if golden is None:
        return ""
    version = f" {golden.version}" if golden.version else ""
    how = "launched for this run" if golden.launched else "not launched by us"
    return (
        f"{golden.name} at {golden.base_url}, model {golden.model}, dialect {golden.dialect}"
        f"{version}, {how}"
    )


def _row(row: dict[str, Any]) -> Row:
    agree, texts = row["agree"], row["texts"]
    return Row(
        length=f"{row['length_tokens']:,}",
        agree=f"{agree}/{texts}",
        tone="r4" if agree == texts else "r2" if agree else "r0",
        cells=(
            _nats(row["kl_top"]),
            _nats(row["kl"]),
            _nats(row["mean_abs"]),
            _nats(row["p99"]),
            f"{_nats(row['maximum'])} at {row['maximum_at']:,}",
            f"{row['top1_agreement']:.2%}",
            f"{row['moved_share']:.1%}",
            _nats(row["answer_loss"]),
        ),
    )


def _nats(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if abs(value) < 1000 else f"{value:.1e}"


def _octave(index: int) -> str:
    return f"{1 << index:,}"


def _drawing(name: str, table: list[list[float]], label: Callable[[int], str]) -> Drawing:
    shares = []
    for i, (opened, total, moved) in enumerate(table):
        if opened:
            title = (
                f"{name} {label(i)}: {moved:.0f} of {opened:.0f} open tokens moved"
                f" ({moved / opened:.1%}), {total / opened:.3g} nats on average"
            )
            shares.append((label(i), moved / opened, title))
    return Drawing(name=f"Moved tokens by {name}", bars=_bars(shares))


def _of_texts(name: str, table: list[list[int]]) -> Drawing:
    shares = [
        (str(i), missed / n, f"{name} = {i}: {missed} of {n} texts do not agree")
        for i, (n, missed) in enumerate(table)
        if n
    ]
    return Drawing(name=f"Texts that do not agree, by {name}", bars=_bars(shares))


def _bars(shares: list[tuple[str, float, str]]) -> tuple[Bar, ...]:
    """Return bars for (label, share, title); at most eight of them are labelled."""
    step, base = _WIDTH / max(1, len(shares)), _HEIGHT - _FOOT
    every = -(-len(shares) // 8)
    return tuple(
        Bar(
            x=round(place * step + 1, 1),
            y=round(base - share * (base - 6), 1),
            width=round(step - 2, 1),
            height=round(share * (base - 6), 1),
            label=label if place % every == 0 else "",
            title=title,
        )
        for place, (label, share, title) in enumerate(shares)
    )


def _divergence(item: dict[str, Any]) -> tuple[str, ...]:
    gap = item["gap_nats"]
    kind = "no alternatives told" if gap is None else "rounding tie" if item["tie"] else "no tie"
    return (
        str(item["trial"]),
        f"{item['tokens']:,}",
        f"{item['position']:,}",
        "" if gap is None else f"{gap:.3g}",
        kind,
    )
