"""SIGTERM: stops a run once, never tears its end, and leaves other people's handlers alone."""

import os
import signal

import pytest

from fidelity.runs.termination import Terminated, Termination


@pytest.fixture
def termination():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    made = Termination()
    yield made
    made.restore()
    signal.signal(signal.SIGTERM, before)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_first_signal_stops_the_run_and_the_next_ones_do_not_tear_its_end(termination):
    termination.watch()
    with pytest.raises(Terminated):
        terminate()
    terminate()  # would end this process if nobody held it


def test_a_run_that_is_being_ended_is_not_torn(termination):
    termination.watch()
    termination.hold()
    terminate()
    termination.restore()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_handler_of_somebody_else_is_left_alone(termination):
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    termination.watch()
    terminate()
    termination.restore()
    terminate()
    assert seen == [1, 1]
