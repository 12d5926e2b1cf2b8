"""A launched server's output: bounded on disk, without secrets, with its last lines at hand."""

import threading
from collections import deque
from pathlib import Path
from typing import IO

from fidelity.config.redaction import Redactor

MAX_LOG_BYTES = 8 << 20
"""Beyond it the file stops, and ends with the last lines."""
_KEPT_LINES = 200
_MAX_LINE_BYTES = 8_192


class ServerLog:
    """Copies a pipe to a file in its own thread until the pipe ends."""

    def __init__(self, pipe: IO[bytes], path: Path | None, redactor: Redactor) -> None:
        """Start copying; without a path only the last lines are kept."""
        self._pipe = pipe
        self.path = path
        self.redactor = redactor
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._copy, name="server-log", daemon=True)
        self._thread.start()

    def last_lines(self, count: int = 12) -> list[str]:
        """Return the last lines that are not empty."""
        lines = [line for line in list(self._last) if line.strip()]
        return lines[-count:]

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for the end of the pipe, whose writers must have ended."""
        self._thread.join(timeout_s)

    def _copy(self) -> None:
        file = self.path.open("ab") if self.path else None
        written = omitted = 0
        try:
            while line := self._pipe.readline(_MAX_LINE_BYTES):
                text = self.redactor.text(line.decode(errors="replace"))
                self._last.append(text.rstrip("\r\n"))
                data = text.encode()
                if file is None or written + len(data) > MAX_LOG_BYTES:
                    omitted += 1
                    continue
                written += len(data)
                file.write(data)
                file.flush()
            if file and omitted:
                tail = "\n".join(self.last_lines(50))
                file.write(f"\n... {omitted} lines omitted; the last ones:\n{tail}\n".encode())
        finally:
            self._pipe.close()
            if file:
                file.close()
