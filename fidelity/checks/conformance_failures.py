"""A 500: trouble of the server, or of one request? The second is a finding, the first never is."""

from __future__ import annotations

import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from fidelity.checks.conformance_wire import ITS_OWN_FAILURE
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from fidelity.checks.conformance_wire import Failed, Line

_PLAIN = [user("Hello!")]


async def is_to_blame(line: Line, failed: Failed) -> bool:
    """Tell whether a request that was answered 500 fails again while plain ones are answered.

    Raises:
        EndpointError: a plain request is not answered either: the server is in trouble.
    """
    await _plain(line, failed, "before")
    again = await line.resend(failed.wire)
    await _plain(line, failed, "after")
    return again.status in ITS_OWN_FAILURE


async def _plain(line: Line, failed: Failed, when: str) -> None:
    label = f"a plain request {when} {failed.wire.label}, sent once more"
    wire = await line.chat(
        _PLAIN,
        label=label,
        max_tokens=1,
        stream=False,
        temperature=0.0,
        copy=zlib.crc32(f"{failed.wire.sent}{label}".encode()),
    )
    if wire.status != HTTPStatus.OK:
        raise failed  # a plain request that is refused proves nothing


def words_of(failed: Failed) -> str:
    """Return the breach in words."""
    wire = failed.wire
    return (
        f"{wire.label}: answered {wire.status} twice ({wire.said!r}), and plain requests in between"
        " were answered"
    )
