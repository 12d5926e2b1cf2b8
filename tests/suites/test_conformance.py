"""A claim is decided by its judge, and only after the judge saw damage that there was."""

from dataclasses import replace

import pytest

from fidelity.checks.conformance import Check, _applies
from fidelity.checks.conformance_stream import read_stream
from fidelity.checks.conformance_wire import Unsupported, Wire
from fidelity.checks.plumbing_shape import respun, with_finish_twice

CHUNK = '{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}'
LAST = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
STREAM = Wire(label="s", path="/chat/completions", sent={"stream": True}).with_events(
    [CHUNK, LAST, "[DONE]"]
)


def test_a_stream_is_read_up_to_done_and_what_follows_is_counted():
    read = read_stream(b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n")
    assert (read.data, read.done, read.after_done, read.breach) == (("1",), 1, 1, "")


@pytest.mark.parametrize("body", [b"data: 1\n\n{}\n\n", b"data: \xff\n\n", b"<html>\n"])
def test_bytes_that_are_no_event_stream_are_named(body):
    assert read_stream(body).breach


def test_comments_and_known_fields_are_no_breach():
    assert read_stream(b": ping\n\nevent: x\nid: 1\nretry: 5\ndata: 1\n\n").breach == ""


def test_an_answer_is_merged_from_its_events():
    draft = STREAM.answer()
    assert ("".join(draft.text), draft.finish_reason) == ("a", "stop")


def test_a_refused_request_has_no_answer():
    refused = replace(STREAM, status=400, body=b'{"error": {"message": "no such field"}}')
    with pytest.raises(Unsupported, match=r"refused with 400.*no such field"):
        refused.answer()


def test_a_damage_that_changes_the_exchange_applies():
    assert _applies(respun("finish twice", with_finish_twice), [STREAM])


def test_a_damage_that_only_lays_the_bytes_out_anew_does_not_apply():
    spaced = respun("nothing", lambda events: [e.replace(":", ": ") for e in events])
    assert not _applies(spaced, [STREAM])


def test_a_damage_that_finds_nothing_to_damage_does_not_apply():
    without_end = STREAM.with_events([CHUNK, "[DONE]"])
    assert not _applies(respun("finish twice", with_finish_twice), [without_end])


def test_the_record_of_an_exchange_holds_request_and_raw_answer():
    wire = replace(STREAM, sent={"stream": True, "seed": 7, "messages": [{"role": "user"}]})
    shown = wire.exchange()
    assert '"seed": 7' in shown.messages[0]["content"]
    assert CHUNK in shown.messages[-1]["content"]
    assert (shown.text, shown.finish_reason) == ("a", "stop")


def test_checks_compare_without_what_they_keep():
    check = Check(name="n", title="t", collect=None, judge=None, damages=())
    assert check == replace(check, kept=[[STREAM]])
