"""`fidelity triage`: opens the deployment, takes the chat apart, writes a run folder and a page."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import anyio

from fidelity.config.settings import Settings, resolve
from fidelity.deployment.deployment import Deployment, open_deployment
from fidelity.errors import HarnessError
from fidelity.measure import Beside
from fidelity.records import Verdict
from fidelity.runs.journal import Journal, new_run_folder
from fidelity.runs.manifest import manifest_of
from fidelity.triage.conversation import Conversation
from fidelity.triage.desk import Desk, Spent
from fidelity.triage.files import Written, write_files
from fidelity.triage.inquiry import Inquiry
from fidelity.triage.judge import Judge
from fidelity.triage.order import Order
from fidelity.triage.page import Outcome, page_lines
from fidelity.triage.reading import read_conversation
from fidelity.triage.recording import CLAIMS, findings_of, verdict_of

_RUNS = "runs"


def main(flags: Mapping[str, object], order: Order) -> int:
    """Take a chat apart, print the page, and return the exit code.

    Raises:
        HarnessError: bad input, or a server that cannot be used.
    """
    chat = read_conversation(order.file, entry=order.entry)
    settings = resolve(flags)
    print(f"fidelity: {settings.measured}", flush=True)
    folder = _folder(settings)
    outcome, written, verdict = anyio.run(_triage, settings, flags, order, chat, folder)
    print("\n".join(page_lines(outcome, written)))
    import reports

    reports.build(folder)
    print(f"\nreport: {folder / 'report.html'}")
    return verdict.exit_code


def _folder(settings: Settings) -> Path:
    if settings.run_dir is None:
        return new_run_folder(Path.cwd() / _RUNS)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    return settings.run_dir.resolve()


async def _triage(
    settings: Settings, flags: Mapping[str, object], order: Order, chat: Conversation, folder: Path
) -> tuple[Outcome, Written | None, Verdict]:
    journal = Journal.create(folder)
    with contextlib.closing(journal):
        async with _opened(settings, folder) as deployment:
            journal.append(
                manifest_of(
                    settings,
                    deployment,
                    run_id=folder.name,
                    epoch=0,
                    command=order.command,
                    planned=CLAIMS,
                    golden=Beside(),
                    left_out={},
                )
            )
            async with _others(settings, flags, order, folder) as (hops, stock):
                outcome = await _inquire(
                    settings,
                    order,
                    chat,
                    deployment,
                    journal,
                    (hops | dict(deployment.roles), stock),
                )
            written = _written(folder, outcome, settings, deployment, order, chat)
        for finding in findings_of(outcome, journal):
            journal.append(finding)
        spent = deployment.client.caps.spent
        verdict = verdict_of(outcome, spent)
        journal.append(verdict)
    return outcome, written, verdict


async def _inquire(
    settings: Settings,
    order: Order,
    chat: Conversation,
    deployment: Deployment,
    journal: Journal,
    others: tuple[dict[str, Deployment], dict[str, Deployment]],
) -> Outcome:
    desk = Desk(
        deployment.client,
        _judge(order, chat),
        journal=journal,
        redactor=settings.redactor,
        most_requests=order.requests,
        most_seconds=order.seconds,
        seed=settings.seed,
    )
    inquiry = Inquiry(
        desk=desk,
        deployment=deployment,
        chat=chat,
        repeats=order.repeats,
        hops=others[0],
        stock=others[1],
    )
    try:
        return await inquiry.run()
    except Spent:
        raise HarnessError(
            f"the bound of {order.requests} requests or {order.seconds:g} s was reached before the"
            " chat was replayed: raise --requests or --seconds"
        ) from None


def _judge(order: Order, chat: Conversation) -> Judge:
    """Return what the command line expects, else what the file itself says."""
    if order.expect or order.reject:
        return Judge(expect=order.expect, reject=order.reject)
    return Judge(expect=chat.expect, reject=chat.reject)


def _written(
    folder: Path,
    outcome: Outcome,
    settings: Settings,
    deployment: Deployment,
    order: Order,
    chat: Conversation,
) -> Written | None:
    if outcome.smallest is None or outcome.mode is None:
        return None
    return write_files(
        folder,
        outcome.smallest,
        _judge(order, chat),
        outcome.mode,
        deployment=deployment,
        settings=settings,
    )


@contextlib.asynccontextmanager
async def _opened(settings: Settings, folder: Path | None) -> AsyncIterator[Deployment]:
    deployment = await open_deployment(settings, run_dir=folder)
    try:
        yield deployment
    finally:
        with anyio.CancelScope(shield=True):
            await deployment.aclose()


@contextlib.asynccontextmanager
async def _others(
    settings: Settings, flags: Mapping[str, object], order: Order, folder: Path
) -> AsyncIterator[tuple[dict[str, Deployment], dict[str, Deployment]]]:
    """Open the other hops and the stock deployment, each within its own settings."""
    async with contextlib.AsyncExitStack() as stack:
        hops = {
            url: await stack.enter_async_context(_opened(_settings_of(settings, flags, url), None))
            for url in order.hops
        }
        stock = {}
        if order.stock:
            beside = _settings_of(settings, flags, order.stock)
            log = folder / "stock"
            log.mkdir(exist_ok=True)
            stock[order.stock] = await stack.enter_async_context(_opened(beside, log))
        yield hops, stock


def _settings_of(settings: Settings, flags: Mapping[str, object], name: str) -> Settings:
    """Return settings of another deployment; flags that say which server is meant stay out."""
    ours = {"base_url", "deployment", "model", "dialect", "launch_arg", "api_key_env", "run_dir"}
    kept = {key: value for key, value in flags.items() if key not in ours}
    key = "base_url" if "://" in name else "deployment"
    found = resolve(kept | {key: name}, environ=settings.environ)
    return replace(found, redactor=settings.redactor)
