"""Runs the requests of one probe at the same time."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

Result = TypeVar("Result")


async def together(jobs: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Return the results of jobs that ran at once, in their order.

    Raises:
        Exception: the first failure, itself and not in a group; the other jobs are cancelled.
    """
    results: dict[int, Result] = {}

    async def run(index: int, job: Callable[[], Awaitable[Result]]) -> None:
        results[index] = await job()

    try:
        async with anyio.create_task_group() as tasks:
            for index, job in enumerate(jobs):
                tasks.start_soon(run, index, job)
    except ExceptionGroup as group:
        raise first_of(group) from None
    return [results[index] for index in range(len(jobs))]


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first failure in a group, itself."""
    found = group.exceptions[0]
    return first_of(found) if isinstance(found, ExceptionGroup) else found
