"""SIGTERM ends a run as Ctrl-C does: what was measured is kept and marked, the server is ended."""

import signal
import threading
from types import FrameType


class Terminated(KeyboardInterrupt):
    """The process was told to end."""


class Termination:
    """Turns the first SIGTERM into `Terminated` in the main thread, while a run measures.

    A handler that somebody else installed is left alone, and so is any thread but the main one.
    """

    def __init__(self) -> None:
        self._measuring = False
        self._installed = False

    def watch(self) -> None:
        """From now on SIGTERM stops the run."""
        mine = threading.current_thread() is threading.main_thread()
        if mine and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._stop)
            self._installed = True
        self._measuring = True

    def hold(self) -> None:
        """From now on the run is being ended: further signals must not tear its last records."""
        self._measuring = False

    def restore(self) -> None:
        """Give the signal back to the system."""
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._installed = False

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._measuring:
            self._measuring = False
            raise Terminated("SIGTERM")
