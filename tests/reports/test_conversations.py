"""Conversations: a failure beside its control, and text of a model that stays text."""

import msgspec

import reports
from fidelity.records import AnyRecord, ToolCall
from fidelity.words import Outcome
from reports.view import report_of
from reports.view_dialogue import conversation_of
from tests.reports import hostile, pieces, runs
from tests.reports.page import Node, read


def conversations(records: list[AnyRecord]) -> Node:
    return read(reports.render_html(records)).one("conversations")


def test_a_failure_stands_beside_the_same_probe_in_its_control_arm() -> None:
    report = report_of(runs.unfaithful_after_abort())
    assert [pair.failure.seed for pair in report.pairs] == [1, 2, 4]
    first = report.pairs[0]
    assert first.control is not None
    assert first.control.seed == 1
    assert first.control_label == "Control: the same probe in arm “no abort”"
    assert [pair.open for pair in report.pairs] == [True, False, False]


def test_each_request_shows_its_tokens_timings_and_finish_reason() -> None:
    chat = next(conversations(runs.unfaithful_after_abort()).every("div", "chat"))
    meta = [node.text for node in chat.every("p", "meta")]
    assert meta == [
        (
            "140 prompt (0 cached) · 17 generated · aborted by the client · first token 31 ms · "
            "all 214 ms · id fid-3f2a"
        ),
        (
            "61 prompt (0 cached) · 9 generated · finish: stop · first token 31 ms · all 214 ms · "
            "id fid-3f2a"
        ),
    ]


def test_a_failure_says_where_it_was_lost() -> None:
    assert report_of(runs.unfaithful_after_abort()).pairs[0].lost.startswith("Lost in rendering:")
    lost = {pair.lost.split(":")[0] for pair in report_of(runs.unfaithful_at_a_residue()).pairs}
    assert lost == {"Lost in attention"}


def test_messages_of_the_request_before_are_not_shown_twice() -> None:
    talk = conversation_of(pieces.dialogue(1, pieces.RENDER))
    assert [(turn.side, turn.pieces[0][0]) for turn in talk.requests[1].turns] == [
        ("remark", "2 messages as in the request before"),
        ("asked", "What is my cat called?"),
        ("right", "Tchaikovsky1"),
    ]


def test_the_right_answer_is_marked_wherever_it_stands() -> None:
    chat = next(conversations(runs.unfaithful_after_abort()).every("div", "chat"))
    assert [node.text for node in chat.every("mark")] == ["Tchaikovsky1", "Tchaikovsky1"]


def test_a_needle_deep_in_a_long_text_stays_in_sight() -> None:
    prompt = f"{'filler ' * 3000}The code is 48151623. {'filler ' * 3000}"
    trial = pieces.needle(
        1, 512, ok=False, expected="48151623", exchanges=(pieces.exchange(prompt, "no"),)
    )
    (turn, _) = conversation_of(trial).requests[0].turns
    text = "".join(piece for piece, _ in turn.pieces)
    assert ("48151623", True) in turn.pieces
    assert len(text) < 1_000
    assert text.count("characters not shown") == 2


def test_a_failure_without_any_right_trial_has_no_control_and_says_so() -> None:
    (pair, *_) = report_of(runs.hostile()).pairs
    assert pair.control is None
    assert pair.control_label == (
        "No trial of this suite went right, so there is nothing to compare with."
    )


def test_without_another_arm_the_nearest_right_trial_is_the_comparison() -> None:
    trials = [pieces.needle(n, 1024 + n, ok=n != 4) for n in range(20)]
    finding = pieces.rate_finding(pieces.NEEDLE.format(1024), "recall", trials, threshold=0.999)
    (pair,) = report_of([*trials, finding]).pairs
    assert pair.control_label == "The nearest trial that went right"
    assert pair.control is not None
    assert pair.control.trial == "needle-1043-19"  # the same depth and kind of needle


def test_the_nearest_trial_is_near_in_length_and_alike_in_kind_whatever_its_residue() -> None:
    def axes(length: int, kind: str) -> dict[str, str | int | float]:
        return {
            "length_tokens": length,
            "needle_kind": kind,
            "prompt_tokens": length,
            "residue_4": length % 4,
            "residue_16": length % 16,
        }

    lost = pieces.needle(1, 8139, ok=False, cell=axes(8139, "key value"))
    same_residue = pieces.needle(2, 203, cell=axes(203, "single"))
    near = pieces.needle(3, 8140, cell=axes(8140, "key value"))
    trials = [lost, same_residue, near]
    finding = pieces.rate_finding(lost.claim, "recall", trials, outcome=Outcome.FAIL)
    records = [msgspec.structs.replace(trial, claim=lost.claim) for trial in trials]
    (pair,) = report_of([*records, finding]).pairs
    assert pair.control is not None
    assert pair.control.trial == near.id


def test_what_the_journal_cut_is_counted_with_what_the_page_cuts() -> None:
    kept = f"{'a' * 1333} ... [22000 characters] ... {'b' * 666}"
    talk = conversation_of(pieces.needle(1, 512, exchanges=(pieces.exchange(kept, "yes"),)))
    (text, _) = talk.requests[0].turns[0].pieces[0]
    assert f"… [{22_000 + 1333 + 666 - 466 - 233:,} characters not shown] …" in text


def test_fresh_probes_of_a_class_are_no_control() -> None:
    trials = [pieces.needle(n, 1024 + n, ok=n != 4) for n in range(20)]
    fresh = [
        pieces.needle(4, 1028, id=f"f{n}", key=f"f{n}", stage=2, arm="class residue_4=0")
        for n in range(3)
    ]
    finding = pieces.rate_finding(pieces.NEEDLE.format(1024), "recall", trials, threshold=0.999)
    report = report_of([*trials, *fresh, finding])
    assert report.pairs[0].control_label == "The nearest trial that went right"
    assert report.cards[0].evidence[0] == (
        "Right by arm: fresh probes at prompt length ≡ 0 (mod 4) 3/3 and plain 19/20."
    )


def test_hostile_text_is_shown_as_text() -> None:
    html = reports.render_html(runs.hostile())
    assert "<script>alert" not in html
    assert "</script><" not in html
    assert "<img" not in html
    assert html.count("</script>") == 1
    page = conversations(runs.hostile())
    assert hostile.HOSTILE in page.text
    assert "{{ 7*7 }}" in page.text


def test_right_to_left_text_keeps_to_its_bubble() -> None:
    page = conversations(runs.hostile())
    bubbles = [node for node in page.every("div", "bubble") if hostile.RTL in node.text]
    assert bubbles
    assert {node.attributes["dir"] for node in bubbles} == {"auto"}


def test_characters_that_hide_or_turn_text_are_spelled_out() -> None:
    html = reports.render_html(runs.hostile())
    for character in "\u202e\u202c\x1b\x07\u200b":
        assert character not in html
    assert (
        "code ⟨U+202E⟩54321⟨U+202C⟩ ⟨U+001B⟩[31mred⟨U+0007⟩" in conversations(runs.hostile()).text
    )


def test_a_very_long_answer_is_cut_to_its_ends() -> None:
    trial = pieces.needle(
        1, 512, ok=False, exchanges=(pieces.exchange("q", f"start{'x' * 100_000}end"),)
    )
    answer = conversation_of(trial).requests[0].turns[-1]
    (text, _) = answer.pieces[0]
    assert text.startswith("startxxx")
    assert text.endswith("xxxend")
    assert "… [99,309 characters not shown] …" in text


def test_a_conversation_of_many_turns_shows_both_ends_in_short_bubbles() -> None:
    messages = tuple({"role": "user", "content": f"{n} {'x' * 900}"} for n in range(60))
    trial = pieces.needle(1, 512, exchanges=(pieces.exchange("", "a", messages=messages),) * 12)
    talk = conversation_of(trial)
    assert [request.title[:3] for request in talk.requests] == [
        "1. ", "2. ", "7. ", "8. ", "9. ", "10.", "11.", "12."
    ]  # fmt: skip
    assert talk.hidden == "4 requests between them not shown"
    first = [turn.pieces[0][0] for turn in talk.requests[0].turns]
    assert len(first) == 15
    assert first[5] == "47 messages not shown"
    assert first[13].startswith("59 xxx")
    assert max(map(len, first)) < 700


def test_reasoning_tool_calls_and_errors_have_their_own_place() -> None:
    call = ToolCall(name="write_file", arguments='{"path": "a.html"}')
    exchanges = (
        pieces.exchange("write", "", reasoning="This is the first message.", tool_calls=(call,)),
        pieces.exchange("again", "", error="the stream broke after 3 chunks"),
    )
    talk = conversation_of(pieces.needle(1, 512, ok=False, exchanges=exchanges))
    assert [(turn.role, turn.pieces[0][0]) for turn in talk.requests[0].turns] == [
        ("user", "write"),
        ("reasoning", "This is the first message."),
        ("tool call", 'write_file({"path": "a.html"})'),
    ]
    assert talk.requests[1].error == "the stream broke after 3 chunks"
    assert [turn.role for turn in talk.requests[1].turns] == ["user"]


def test_an_empty_answer_is_shown_as_such() -> None:
    talk = conversation_of(pieces.needle(1, 512, ok=False, exchanges=(pieces.exchange("q", ""),)))
    assert talk.requests[0].turns[-1].pieces == (("(empty answer)", False),)


def test_damaged_requests_of_controls_are_not_shown_as_failures() -> None:
    trials = [pieces.needle(n, 1024, ok=False, id=f"control-{n}", key="") for n in range(8)]
    finding = msgspec.structs.replace(
        pieces.rate_finding(pieces.NEEDLE.format(1024), "recall", trials), trials=()
    )
    assert report_of([*trials, *pieces.controls(), finding]).pairs == ()


def test_a_miss_that_a_pass_bears_is_shown_too_but_closed_and_last() -> None:
    trials = [pieces.needle(n, 1024 + n, ok=n != 4) for n in range(44)]
    passed = pieces.rate_finding(pieces.NEEDLE.format(1024), "recall", trials)
    records = [*trials, passed, *runs.unfaithful_after_abort()[-5:-4]]
    (pair,) = report_of(records).pairs
    assert (pair.title, pair.open) == ("recall", False)
    cells = [cell for _, row in report_of(records).needles.by_depth.rows for cell in row]
    assert [cell.href for cell in cells if cell.tone != "r4"] == [pair.anchor] * 2
