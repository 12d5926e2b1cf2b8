"""A 500 or a cut: trouble of the server, or of one request? Only the second is a finding."""

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
    """Tell whether a request that failed fails again while plain ones are answered.

    Raises:
        EndpointError: a plain request is not answered either: the server is in trouble.
    """
    await _plain(line, failed, "before")
    again = await line.resend(failed.wire)
    await _plain(line, failed, "after")
    return again.status in ITS_OWN_FAILURE or not again.status


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
    seen = f"answered {wire.status}" if wire.status else "the connection was cut"
    return (
        f"{wire.label}: {seen} ({wire.said!r}), no better when sent again, and plain requests in"
        " between were answered"
    )
