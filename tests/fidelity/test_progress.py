"""Progress: a bar on a terminal that leaves nothing behind, plain lines elsewhere."""

import io
import os

import pytest

from fidelity.runs import progress
from fidelity.runs.progress import ProgressMeter, copy_of


class Kept(io.StringIO):
    """Keeps its text when the meter gives it back."""

    def close(self):
        self.kept = self.getvalue()
        super().close()


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def meter(stream, *, live=False, claims=4, limit_s=None):
    return ProgressMeter(stream, live=live, claims=claims, limit_s=limit_s, make_room=lambda: None)


def test_plain_lines_come_now_and_then_and_at_the_end_of_a_long_batch(clock):
    stream = Kept()
    shown = meter(stream)
    shown.begin("needle/recall", 40, 400_000)
    for _ in range(40):
        clock[0] += 1.0
        shown.advance(10_000)
    shown.end()
    shown.close()
    lines = stream.kept.splitlines()
    assert lines[0] == "fidelity: [1/4] needle/recall: 15/40 trials, 150k of 400k tokens, 15 s"
    assert len(lines) == 3  # after 15 s, after 30 s, and at the end
    assert lines[-1].endswith("40/40 trials, 400k of 400k tokens, 40 s")


def test_a_short_batch_leaves_no_line(clock):
    stream = Kept()
    shown = meter(stream)
    shown.begin("needle/recall", 2, 200)
    shown.advance(100)
    clock[0] += 1.0
    shown.end()
    shown.close()
    assert stream.kept == ""


@pytest.mark.parametrize(
    ("limit_s", "told"), [(None, ", 1 min 15 s"), (780.0, ", 1 min 15 s of at most 13 min 00 s")]
)
def test_the_time_of_the_run_is_told_beside_its_limit(clock, limit_s, told):
    shown = meter(io.StringIO(), limit_s=limit_s)
    shown.claim_started()
    clock[0] += 75.0
    shown.claim_ended()
    shown.begin("needle/two", 10, 0)
    assert shown._words().endswith(f"tokens{told}")


def test_a_bar_is_drawn_on_a_terminal_and_erased():
    stream = Kept()
    shown = meter(stream, live=True)
    shown.begin("needle/[red]recall", 2, 200)
    shown.advance(100)
    shown.advance(100)
    shown.end()
    shown.close()
    assert "needle/[red]recall: 2/2 trials" in stream.kept  # no markup is read from names
    assert stream.kept.endswith("\x1b[2K")  # the last thing that happens is erasing the line


def test_a_copy_of_a_descriptor_outlives_its_redirection(tmp_path):
    target = tmp_path / "terminal"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT)
    stream = copy_of(descriptor)
    os.close(descriptor)
    stream.write("still there \ud800\n")
    stream.close()
    assert target.read_text() == "still there ?\n"
