"""Stops a run from hammering a server that no longer answers."""

from fidelity.errors import EndpointError

ERRORS_IN_A_ROW = 8


class Breaker:
    """Counts infrastructure errors in a row over the whole run; one success closes it again.

    While it is open, a claim sends one probe alone to see whether the server is back.
    """

    def __init__(self, limit: int = ERRORS_IN_A_ROW) -> None:
        self.limit = limit
        self._in_a_row = 0
        self._last = ""

    @property
    def is_open(self) -> bool:
        """True when the last `limit` trials all ended in infrastructure trouble."""
        return self._in_a_row >= self.limit

    def record(self, error: str) -> None:
        """Note how one trial ended; "" is a success."""
        self._in_a_row = self._in_a_row + 1 if error else 0
        self._last = error

    def check(self) -> None:
        """Refuse to go on while the breaker is open.

        Raises:
            EndpointError: how many trials failed in a row, and the last reason.
        """
        if self.is_open:
            raise EndpointError(
                f"stopped asking after {self._in_a_row} trials in a row could not be measured;"
                f" the last: {self._last}"
            )
