"""The judge of long texts: healthy texts pass, loops do not, in any script, however late."""

import pytest

from fidelity.checks import generation
from fidelity.checks.generation import counted_wrong, with_late_loop, with_repeated_line
from fidelity.checks.repetition import repetition
from fidelity.endpoint.replies import Reply

LINES = "\n".join(f"{n}. The {n * 7 % 97} old lamps burn by the bridge." for n in range(1, 80))
DAYS = " ".join(f"On day {n} the fox went to the inn and found {n} chairs." for n in range(1, 60))
JSON_ROWS = "\n".join(f'{{"id": {n}, "ok": true, "value": {n * 31 % 101}}},' for n in range(90))


@pytest.mark.parametrize(
    "text",
    [
        *generation.healthy_texts().values(),
        LINES,
        DAYS,
        JSON_ROWS,
        "\n".join(f"Line {n}: ok" for n in range(1, 400)),
        "\n".join(f"| {n} | 0 | 0 | 0 | 0 | 0 | 0 |" for n in range(60)),
        f"{LINES}\n{'-' * 80}",
        f"{LINES} He laughed: ha ha ha ha ha",
        f"{LINES} never, never, never",
        "",
        "a",
    ],
)
def test_healthy_text_is_no_loop(text):
    assert repetition(text).breaches == []


@pytest.mark.parametrize(
    ("text", "unit_chars"),
    [
        (f"{LINES}{' and then' * 6}", 9),
        (f"{LINES}{'然后我们走' * 5}", 5),
        (f"{LINES}{'ab, cd; ' * 400}", 8),
        (
            f"{LINES}{chr(10)}{'The same line once more, and then again as before. ' * 3}The same",
            51,
        ),
        ("天地玄黄宇宙洪荒" * 30, 8),
        (f"{LINES}{'!' * 200}", 1),
    ],
)
def test_looping_tail_is_found_with_its_unit(text, unit_chars):
    found = repetition(text)
    assert found.tail is not None
    assert len(found.tail.unit) == unit_chars
    assert "ends in a loop" in found.breaches[0]


def test_a_loop_that_the_text_leaves_again_is_found_where_it_starts():
    found = repetition(f"{LINES}{' ab cd ef' * 30}{DAYS}")
    assert found.tail is None
    assert abs(found.inner.start - len(LINES)) <= 2
    assert "holds a loop" in found.breaches[0]


def test_one_word_over_and_over_is_found():
    assert "one word follows itself 9 times" in repetition(f"{DAYS}{' the' * 9} end").breaches


def test_one_line_between_others_is_found():
    lines = [text for line in LINES.split("\n") for text in (line, "This line is the same.")]
    assert any("79 of 158 lines" in breach for breach in repetition("\n".join(lines)).breaches)


def test_a_page_over_and_over_compresses_too_well():
    page = " ".join(f"{n * 7919 % 10_007} lamps" for n in range(250))
    found = repetition(" and so on ".join([page] * 30) + " at last, no more of it")
    assert found.gzip_ratio < 0.05
    assert any("compresses" in breach for breach in found.breaches)


@pytest.mark.parametrize("damage", [with_repeated_line, with_late_loop])
@pytest.mark.parametrize("text", [LINES, DAYS, JSON_ROWS])
def test_damaged_text_is_found(damage, text):
    assert repetition(damage(text)).breaches


def reply(finish_reason, tokens, chunks=5):
    return Reply(
        request_id="r",
        path="/chat/completions",
        text="x",
        finish_reason=finish_reason,
        completion_tokens=tokens,
        chunks=chunks,
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (reply("length", 90), "'length' after 90"),
        (reply("stop", 100), "'stop' at max_tokens"),
        (reply("stop", 101), "101 completion tokens"),
        (reply("", 50), "finish_reason ''"),
        (reply("stop", 10, chunks=60), "60 pieces"),
    ],
)
def test_contradicting_counts_are_named(given, word):
    assert word in counted_wrong(given, 100)[0]


@pytest.mark.parametrize("given", [reply("length", 100), reply("stop", 99), reply("stop", None)])
def test_consistent_counts_are_not(given):
    assert counted_wrong(given, 100) == []
