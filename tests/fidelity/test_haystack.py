"""Contexts: exact lengths in several vocabularies, facts at their depth, distinct filler."""

import itertools
import random
import re

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelity.errors import ConfigError
from fidelity.probes.calibration import Count
from fidelity.probes.filler import Filler, filler_of, numbered, pad_words
from fidelity.probes.haystack import Placed, Size, fit, haystack
from fidelity.probes.needles import (
    FEWEST_SECTIONS,
    MOST_SECTIONS,
    NEAR_DUPLICATES,
    PAIRS,
    NeedleKind,
    draw_needle,
)

# what real vocabularies do: one digit a token, three digits a token, letters one by one
VOCABULARIES = {
    "digits apart": re.compile(r" ?[A-Za-z]+|\d|[^\w\s]|\s"),
    "digits in threes": re.compile(r" ?[A-Za-z]+|\d{1,3}|[^\w\s]+|\s"),
    "characters": re.compile(r"(?s)."),
    "halves of words": re.compile(r" ?[A-Za-z]{1,4}|\d|[^\w\s]|\s"),
}


def counter(vocabulary, overhead=5):
    async def count(messages):
        text = "".join(message["content"] for message in messages)
        return Count(len(VOCABULARIES[vocabulary].findall(text)) + overhead, exact=True)

    return count


def prompt(seed, placed=()):
    def render(size):
        text = haystack(seed, size, placed)
        return [{"role": "user", "content": f"Read.\n{text}What is the code?"}]

    return render


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@settings(max_examples=15, deadline=None)
@given(target=st.integers(200, 3_000), seed=st.integers(0, 10**6))
def test_a_prompt_has_the_very_number_of_tokens(vocabulary, target, seed):
    fitted = anyio.run(fit, counter(vocabulary), prompt(str(seed)), target)
    # a word of several tokens can miss by less than itself, never beyond the target
    slack = {"digits apart": 0, "digits in threes": 0, "characters": 20, "halves of words": 1}
    assert target - slack[vocabulary] <= fitted.tokens <= target
    assert anyio.run(counter(vocabulary), fitted.messages).tokens == fitted.tokens


def test_neighbouring_targets_give_neighbouring_lengths():
    lengths = [
        anyio.run(fit, counter("digits apart"), prompt("same"), target).tokens
        for target in range(300, 364)
    ]
    assert lengths == list(range(300, 364))


def test_a_prompt_too_short_for_its_question_is_refused_in_words():
    with pytest.raises(ConfigError, match=r"a prompt of 5 tokens cannot hold its question"):
        anyio.run(fit, counter("digits apart"), prompt("x"), 5)


def test_few_counts_are_needed():
    calls = []
    count = counter("digits apart")

    async def counted(messages):
        calls.append(1)
        return await count(messages)

    anyio.run(fit, counted, prompt("x"), 8_000)
    assert len(calls) <= 8


@pytest.mark.parametrize(
    ("depth", "place"), [(0.0, 0), (0.25, 10), (0.5, 20), (0.75, 30), (1.0, 40)]
)
def test_a_fact_stands_at_its_depth(depth, place):
    text = haystack("s", Size(lines=40), [Placed(sentence="THE FACT.", depth_frac=depth)])
    lines = text.splitlines()
    assert len(lines) == 41
    assert lines[place] == f"Line {place + 1}: THE FACT."


def test_the_fact_alone_differs_between_a_prompt_and_its_control():
    with_fact = haystack("s", Size(lines=9), [Placed(sentence="FACT.", depth_frac=0.5)])
    without = haystack("s", Size(lines=9))
    unnumbered = [line.partition(": ")[2] for line in with_fact.splitlines()]
    assert [line for line in unnumbered if line != "FACT."] == [
        line.partition(": ")[2] for line in without.splitlines()
    ]


def test_filler_lines_are_all_different_and_the_same_each_time():
    many = filler_of("seed").sentences(5_000)
    assert len(set(many)) == 5_000
    assert Filler("seed").sentences(100) == many[:100]
    assert Filler("other").sentences(100) != many[:100]


def test_repeated_filler_is_one_line():
    text = haystack("s", Size(lines=30), repeated="The grass is green.")
    assert len({line.partition(": ")[2] for line in text.splitlines()}) == 1


def test_numbers_go_on_from_the_first():
    assert numbered(["a", "b"], first=7) == "Line 7: a\nLine 8: b\n"


@given(st.integers(0, 60), st.text(max_size=8))
def test_pad_words_grow_word_by_word_and_never_repeat_at_once(count, seed):
    words = pad_words(count, seed).split()
    assert len(words) == count
    assert pad_words(count + 5, seed).split()[:count] == words
    assert all(a != b for a, b in itertools.pairwise(words))


NAMED = [kind for kind in NeedleKind if kind is not NeedleKind.SECTION]


@pytest.mark.parametrize("kind", NAMED)
def test_a_needle_and_its_rivals_have_codes_and_names_of_their_own(kind):
    rivals = {NeedleKind.SINGLE: 0, NeedleKind.NEAR_DUPLICATE: NEAR_DUPLICATES}
    for seed in range(50):
        needle = draw_needle(random.Random(seed), kind)  # noqa: S311
        codes = [needle.code, *needle.rival_codes]
        assert len(set(codes)) == len(codes) == 1 + rivals.get(kind, PAIRS - 1)
        assert needle.code in needle.statement
        assert all(needle.code not in rival for rival in needle.rivals)
        name = re.search(r"for the (\w+ \w+)\?", needle.question)[1]
        assert f"the {name} is" in needle.statement
        assert all(f"the {name} is" not in rival for rival in needle.rivals)


def test_near_duplicates_differ_in_one_word():
    for seed in range(50):
        needle = draw_needle(random.Random(seed), NeedleKind.NEAR_DUPLICATE)  # noqa: S311
        name = set(re.search(r"the (\w+ \w+) is", needle.statement)[1].split())
        for rival in needle.rivals:
            assert len(name & set(re.search(r"the (\w+ \w+) is", rival)[1].split())) == 1


@pytest.mark.parametrize(
    ("tokens", "sections"), [(256, FEWEST_SECTIONS), (4_096, 8), (10**6, MOST_SECTIONS)]
)
def test_a_section_is_told_by_its_heading_alone(tokens, sections):
    for seed in range(50):
        needle = draw_needle(random.Random(seed), NeedleKind.SECTION, tokens=tokens)  # noqa: S311
        codes = [needle.code, *needle.rival_codes]
        headings = [needle.heading, *needle.rival_headings]
        assert len(set(codes)) == len(set(headings)) == sections
        title = needle.heading.removeprefix("## ")
        assert f"in the section {title}?" in needle.question
        lines = [needle.statement, *needle.rivals]
        assert all(code in line for code, line in zip(codes, lines, strict=True))
        assert len({line.replace(code, "") for code, line in zip(codes, lines, strict=True)}) == 1
        words = [word for heading in headings for word in heading.split()[1:]]
        assert len(set(words)) == len(words)


def test_headings_have_no_number_and_what_shares_a_place_keeps_its_order():
    placed = [
        Placed(sentence="## one", depth_frac=0.0, heading=True),
        Placed(sentence="FACT.", depth_frac=0.1),
        Placed(sentence="## two", depth_frac=0.1, heading=True),
    ]
    assert haystack("s", Size(lines=0), placed) == "## one\nLine 1: FACT.\n## two\n"
    lines = haystack("s", Size(lines=10), placed).splitlines()
    assert [lines[0], *lines[2:4]] == ["## one", "Line 2: FACT.", "## two"]
    assert lines[-1].startswith("Line 11: ")
