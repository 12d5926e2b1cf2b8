import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelity.endpoint.sse import BrokenStream, Event, SseParser


def _parse(chunks, **bounds):
    parser = SseParser(**bounds)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_separates_events(end):
    stream = end.join([b"data: a", b"", b"data: b", b"data:c", b"", b""])
    assert _parse([stream]) == [Event("a"), Event("b\nc")]


def test_comments_ids_and_unknown_fields_carry_nothing():
    stream = b": ping\n\nid: 7\nretry: 3\nnonsense\nevent: delta\ndata: x\n\n"
    assert _parse([stream]) == [Event("x", "delta")]


def test_only_one_space_after_the_colon_is_dropped():
    assert _parse([b"data:  x \n\n"]) == [Event(" x ")]


def test_an_event_without_data_is_none():
    assert _parse([b"event: ping\n\n\n\n"]) == []


def test_a_last_event_without_blank_line_counts():
    assert _parse([b"data: a\n\ndata: [DONE]"]) == [Event("a"), Event("[DONE]")]


def test_a_byte_order_mark_is_no_part_of_the_first_field():
    assert _parse([b"\xef\xbb\xbfdata: a\n\n"]) == [Event("a")]


TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@given(
    data=st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(1, 9), min_size=1),
)
def test_chunk_borders_never_change_the_events(data, end, cuts):
    lines = [line for event in data for line in (*(f"data: {t}" for t in event), ": c", "")]
    stream = "".join(line + end for line in lines).encode()
    chunks = []
    while stream:
        size = cuts[len(chunks) % len(cuts)]
        chunks.append(stream[:size])
        stream = stream[size:]
    assert _parse(chunks) == [Event("\n".join(event)) for event in data]


def test_bytes_that_are_no_utf8_break_the_stream():
    with pytest.raises(BrokenStream, match="not UTF-8"):
        _parse([b"data: \xff\n\n"])


@pytest.mark.parametrize(
    ("bounds", "stream", "why"),
    [
        ({"max_line_bytes": 10}, [b"data: ", b"12345"], "a line is longer than 10"),
        ({"max_line_bytes": 10}, [b"data: 1234\n" * 3], "an event is longer than 10"),
        ({"max_stream_bytes": 20}, [b": x\n\n"] * 5, "the stream is longer than 20"),
    ],
)
def test_each_bound_is_kept(bounds, stream, why):
    with pytest.raises(BrokenStream, match=why):
        _parse(stream, **bounds)


def test_a_long_line_in_many_chunks_is_read_in_linear_time():
    parser = SseParser()
    events = []
    for _ in range(4_000):
        events += parser.feed(b"data: " if not parser._total else b"x" * 4_000)
    events += parser.feed(b"\n\n")
    assert [len(event.data) for event in events] == [3_999 * 4_000]
