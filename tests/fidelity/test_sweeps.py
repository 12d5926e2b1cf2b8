"""Sweeps of needles: which lengths, residues, depths and kinds are asked, and fresh classes."""

import random
import re
from collections import Counter

import anyio
import pytest

from fidelity.checks.answering import Judged
from fidelity.checks.recall import DEPTHS_FRAC, fit_needle, judge_length, needle_probe, residues
from fidelity.checks.sweeps import (
    boundary_sweep,
    by_length,
    classes_beside_kind,
    classes_of,
    fresh_of_class,
    residue_sweep,
    row_lengths,
    sweep,
)
from fidelity.endpoint.replies import Reply, Tokenized
from fidelity.errors import ConfigError
from fidelity.probes.haystack import Fitted, Size
from fidelity.probes.needles import NeedleKind, draw_needle
from fidelity.records import Trial
from fidelity.verdicts.opened import OpenedClass
from fidelity.words import Score

KINDS = (NeedleKind.SINGLE, NeedleKind.SINGLE, NeedleKind.NEAR_DUPLICATE, NeedleKind.KEY_VALUE)


def asked(row=1_024, trials=64, seed=1):
    return sweep(seed=seed, row_tokens=row, trials=trials, kinds=KINDS)


def lengths(probes):
    return [probe.recipe["prompt_tokens"] for probe in probes]


@pytest.mark.parametrize(("modulus", "each"), [(4, 16), (16, 4), (64, 1)])
def test_64_trials_hold_every_residue_equally_often(modulus, each):
    assert Counter(n % modulus for n in lengths(asked())) == dict.fromkeys(range(modulus), each)


def test_14_trials_hold_14_residues_of_16_and_all_of_4():
    found = lengths(asked(trials=14))
    assert len({n % 16 for n in found}) == 14
    assert {n % 4 for n in found} == {0, 1, 2, 3}


def test_rows_together_hold_every_residue_of_16():
    found = [n for row in (256, 512, 1_024) for n in lengths(asked(row=row, trials=14))]
    assert {n % 16 for n in found} == set(range(16))


def test_lengths_stay_near_their_row_and_below_it():
    assert all(1_024 - 64 < n <= 1_024 for n in lengths(asked()))


def test_depths_and_kinds_are_balanced_and_independent_of_the_residue():
    probes = asked()
    depths = Counter(p.cell["depth_frac"] for p in probes)
    assert set(depths) == set(DEPTHS_FRAC)
    assert max(depths.values()) - min(depths.values()) <= 1
    kinds = Counter(p.cell["needle_kind"] for p in probes)
    assert kinds == {"single": 32, "near duplicate": 16, "key value": 16}
    for residue in range(4):
        there = [p for p in probes if p.cell["residue_4"] == residue]
        assert len({p.cell["needle_kind"] for p in there}) >= 2
        assert len({p.cell["depth_frac"] for p in there}) >= 4


def test_every_axis_reaches_the_probe():
    base = {"seed": "s", "row_tokens": 512, "prompt_tokens": 500, "depth_frac": 0.5}
    plain = needle_probe(**base)
    others = [
        needle_probe(**base | {"seed": "t"}),
        needle_probe(**base | {"prompt_tokens": 501}),
        needle_probe(**base | {"depth_frac": 0.75}),
        needle_probe(**base, kind=NeedleKind.KEY_VALUE),
    ]
    assert len({probe.key for probe in (plain, *others)}) == 5
    assert all(probe.recipe != plain.recipe for probe in others)
    assert needle_probe(**base, without_fact=True).recipe["without_fact"] is True


def test_a_recipe_rebuilds_its_probe():
    probe = asked(trials=5)[3]
    recipe = dict(probe.recipe)
    assert recipe.pop("builder") == "needle_probe"
    again = needle_probe(**recipe | {"kind": NeedleKind(recipe["kind"])})
    assert (again.key, again.cell, again.expected) == (probe.key, probe.cell, probe.expected)


def test_seeds_give_different_needles_and_keys_are_unique():
    probes = asked()
    assert len({probe.key for probe in probes}) == 64
    assert len({probe.expected for probe in probes}) > 60
    assert lengths(asked(seed=2)) != lengths(probes)


def test_neighbouring_lengths_hold_every_residue_once():
    found = lengths(residue_sweep(seed=0, first_tokens=193, count=64))
    assert found == list(range(193, 257))


def test_boundaries_are_asked_on_either_side_and_only_inside_the_context():
    probes = boundary_sweep(seed=0, boundaries=(64, 128, 512, 9_999), limit_tokens=1_000)
    assert lengths(probes) == [127, 128, 129, 511, 512, 513]
    assert [p.cell["boundary"] for p in probes[:3]] == ["128-1", "128+0", "128+1"]


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("residue_4=3", lambda p: p.recipe["prompt_tokens"] % 4 == 3),
        ("residue_128=77", lambda p: p.recipe["prompt_tokens"] % 128 == 77),
        ("depth_frac=0.25", lambda p: p.recipe["depth_frac"] == 0.25),
        ("needle_kind=key value", lambda p: p.recipe["kind"] == "key value"),
        ("length_tokens=2048", lambda p: p.cell["length_tokens"] == 2_048),
        ("boundary=512-1", lambda p: p.recipe["prompt_tokens"] == 511),
        ("boundary=512+1", lambda p: p.recipe["prompt_tokens"] == 513),
    ],
)
def test_a_fresh_class_is_exactly_that_class(name, holds):
    probes = fresh_of_class(name, 22, seed=3, row_tokens=(256, 512, 1_024, 2_048))
    assert len({probe.key for probe in probes}) == 22
    assert all(holds(probe) for probe in probes)
    trial = Trial(id="t", claim="c", suite="s", probe="needle", cell=dict(probes[0].cell))
    assert name in classes_of(trial)


def test_other_axes_vary_inside_a_class():
    probes = fresh_of_class("residue_4=3", 22, seed=3, row_tokens=(256, 512, 1_024))
    assert len({probe.recipe["depth_frac"] for probe in probes}) == 5
    assert len({probe.recipe["prompt_tokens"] % 16 for probe in probes}) > 2


def test_a_class_is_asked_with_the_kind_of_its_sweep():
    probes = fresh_of_class("residue_4=3", 22, seed=3, row_tokens=(1_024,), kind=NeedleKind.SECTION)
    assert {p.cell["needle_kind"] for p in probes} == {"section"}
    trial = Trial(id="t", claim="c", suite="s", probe="needle", cell=dict(probes[0].cell))
    assert "residue_4=3" in classes_beside_kind(trial)
    assert not any("needle_kind" in name for name in classes_beside_kind(trial))


def test_a_length_too_short_for_every_kind_is_refused_where_single_needles_are_not_meant():
    with pytest.raises(ConfigError, match="a prompt of 300 tokens is too short for: section"):
        sweep(seed=0, row_tokens=300, trials=4, kinds=[NeedleKind.SECTION])
    assert len(sweep(seed=0, row_tokens=128, trials=4, kinds=KINDS)) == 4


class Counted:
    """A deployment that counts words."""

    class client:  # noqa: N801 - the name of the part
        @staticmethod
        async def tokenize(messages, **_):
            return Tokenized(count=len(messages[0]["content"].split()))


def sections_of(depth_frac, *, target=600, **options):
    """Return (title, code) of each section, the lines from heading to code, and the needle."""
    needle = draw_needle(random.Random("n"), NeedleKind.SECTION, tokens=target)  # noqa: S311

    async def fitted():
        return await fit_needle(
            Counted, needle, seed="n", target=target, depth_frac=depth_frac, **options
        )

    text = anyio.run(fitted).messages[0]["content"]
    found, between = [], []
    for part in text.split("## ")[1:]:
        told = re.search(r"The access code is (\d+)\.", part)
        found.append((part.partition("\n")[0], told[1] if told else None))
        between.append(part[: told.start()].count("\n") if told else None)
    return found, between, needle


@pytest.mark.parametrize("depth_frac", DEPTHS_FRAC)
def test_each_line_stands_far_below_its_own_heading(depth_frac):
    found, between, needle = sections_of(depth_frac)
    place = round(depth_frac * (len(found) - 1))
    assert found[place] == (needle.heading.removeprefix("## "), needle.code)
    assert {code for _, code in found} == {needle.code, *needle.rival_codes}
    assert all(lines >= 2 for lines in between)


def test_without_its_fact_a_section_is_empty_and_the_others_stay():
    found, _, needle = sections_of(0.5, without_fact=True)
    codes = dict(found)
    assert codes[needle.heading.removeprefix("## ")] is None
    assert set(codes.values()) == {None, *needle.rival_codes}


def test_an_unknown_class_is_refused():
    with pytest.raises(ConfigError, match="no class 'colour=red'"):
        fresh_of_class("colour=red", 22, seed=0, row_tokens=(256,))


@pytest.mark.parametrize(
    ("longest", "limit", "rows"),
    [
        (8_192, None, [256, 512, 1_024, 2_048, 4_096, 8_192]),
        (8_192, 32_768, [256, 512, 1_024, 2_048, 4_096, 8_192]),
        (8_192, 3_048, [256, 512, 1_024, 2_048, 3_000]),
        (8_192, 2_100, [256, 512, 1_024, 2_048]),
        (8_192, 248, [200]),
    ],
)
def test_rows_double_up_to_what_the_deployment_holds(longest, limit, rows):
    assert row_lengths(256, longest, limit) == rows


def trial(cell, arm=""):
    return Trial(id="t", claim="c", suite="s", probe="needle", cell=cell, arm=arm)


def test_a_length_is_decided_on_both_stages_and_boundaries_stay_apart():
    stage_one = [
        trial({"length_tokens": 256}),
        trial({"length_tokens": 512}),
        trial({"length_tokens": 512, "boundary": "512+1"}),
    ]
    fresh = trial({"length_tokens": 512}, arm="class")
    opened = [
        OpenedClass(name="length_tokens=512", threshold=0.8, trials=(fresh,), stage_one=()),
        OpenedClass(name="residue_4=3", threshold=0.8, trials=(fresh,), stage_one=()),
    ]
    found = by_length(stage_one, opened, (256, 512))
    assert {row: len(trials) for row, trials in found.items()} == {256: 1, 512: 2}


def judged(ok, prompt_tokens, error=""):
    reply = Reply(request_id="r", path="", prompt_tokens=prompt_tokens)
    scored = Score.RIGHT if ok else Score.WRONG
    return Judged(reply=reply, score=scored, ok=ok, error=error)


FITTED = Fitted(messages=[], tokens=500, counted=True, size=Size(lines=1))


def test_residues_are_of_the_length_that_usage_tells():
    result = judge_length(judged(ok=False, prompt_tokens=450), FITTED, target=500)
    assert result.cell == residues(450)
    assert result.cell["residue_64"] == 450 % 64


def test_a_right_answer_to_another_length_cannot_be_placed():
    result = judge_length(judged(ok=True, prompt_tokens=503), FITTED, target=500)
    assert result.ok is None
    assert "counted 500 tokens for a prompt of which usage says 503" in result.error


@pytest.mark.parametrize(("seen", "lost"), [(450, "rendering"), (500, "attention"), (None, "")])
def test_a_wrong_answer_is_wrong_and_says_where_it_was_lost(seen, lost):
    result = judge_length(judged(ok=False, prompt_tokens=seen), FITTED, target=500)
    assert (result.ok, result.lost) == (False, lost)


def test_a_boundary_that_was_not_met_is_not_claimed():
    result = judge_length(judged(ok=True, prompt_tokens=500), FITTED, target=512, boundary="512+0")
    assert result.cell["boundary"] == "512+0 not met"
