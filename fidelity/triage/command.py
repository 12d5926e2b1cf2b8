"""`fidelity triage`: opens the deployment, takes the chat apart, writes a run folder and a page."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import anyio
from anyio.from_thread import start_blocking_portal

from fidelity.config.settings import Settings, resolve
from fidelity.deployment.beside import Beside
from fidelity.deployment.deployment import Deployment, open_deployment
from fidelity.deployment.patch_states import patch_states
from fidelity.errors import HarnessError
from fidelity.records import Manifest, Verdict
from fidelity.runs.journal import Journal, new_run_folder
from fidelity.runs.manifest import manifest_of
from fidelity.runs.termination import Termination
from fidelity.triage.conversation import Conversation
from fidelity.triage.desk import Desk, Spent
from fidelity.triage.files import Written, write_files
from fidelity.triage.inquiry import Inquiry
from fidelity.triage.judge import Judge
from fidelity.triage.order import Order
from fidelity.triage.page import Outcome, page_lines
from fidelity.triage.reading import read_conversation
from fidelity.triage.recording import CLAIMS, findings_of, verdict_of
from fidelity.triage.topic import fact_of
from fidelity.verdicts.verdict import EXIT_INTERRUPTED, EXIT_UNDECIDED
from fidelity.words import RunVerdict

_RUNS = "runs"
Others = dict[str, Deployment | str]
"""Other deployments by name; a text says why one could not be opened."""


def main(flags: Mapping[str, object], order: Order) -> int:
    """Take a chat apart, print the page, and return the exit code.

    Raises:
        HarnessError: bad input, or a server that cannot be used.
    """
    chat = read_conversation(order.file, entry=order.entry)
    settings = resolve(flags)
    print(f"fidelity: {settings.measured}", flush=True)
    folder = _folder(settings)
    termination = Termination()
    with contextlib.closing(Journal.create(folder)) as journal:
        termination.watch()
        try:
            outcome, written = _asked(settings, flags, order, chat, folder, journal)
        except KeyboardInterrupt:
            _end_early(journal, settings, order, "interrupted", EXIT_INTERRUPTED)
            print(f"\ninterrupted; what was asked is kept: {folder / 'report.html'}")
            return EXIT_INTERRUPTED
        except HarnessError as error:
            _end_early(journal, settings, order, f"not measured: {error}", EXIT_UNDECIDED)
            raise
        finally:
            termination.restore()
    print("\n".join(page_lines(outcome, written)))
    _report(folder)
    print(f"\nreport: {folder / 'report.html'}")
    return journal.verdict.exit_code if journal.verdict is not None else EXIT_UNDECIDED


def _asked(
    settings: Settings,
    flags: Mapping[str, object],
    order: Order,
    chat: Conversation,
    folder: Path,
    journal: Journal,
) -> tuple[Outcome, Written | None]:
    """Run the triage in an event loop of its own thread: a signal then finds this one waiting."""
    with start_blocking_portal() as portal:
        future = portal.start_task_soon(_triage, settings, flags, order, chat, folder, journal)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _report(folder: Path) -> None:
    import reports

    reports.build(folder)


def _end_early(
    journal: Journal, settings: Settings, order: Order, sentence: str, exit_code: int
) -> None:
    """Write the last record of a triage that did not come to its end, and its report."""
    if not journal.manifests:
        journal.append(_manifest(settings, None, order, journal))
    journal.append(
        Verdict(
            verdict=RunVerdict.UNDECIDED,
            sentence=settings.redactor.text(sentence)[:2_000],
            exit_code=exit_code,
            interrupted=exit_code == EXIT_INTERRUPTED,
        )
    )
    _report(journal.path.parent)


def _manifest(
    settings: Settings, deployment: Deployment | None, order: Order, journal: Journal
) -> Manifest:
    return manifest_of(
        settings,
        deployment,
        run_id=journal.path.parent.name,
        epoch=0,
        command=order.command,
        planned=CLAIMS,
        golden=Beside(),
        left_out={},
    )


def _folder(settings: Settings) -> Path:
    if settings.run_dir is None:
        return new_run_folder(Path.cwd() / _RUNS)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    return settings.run_dir.resolve()


async def _triage(
    settings: Settings,
    flags: Mapping[str, object],
    order: Order,
    chat: Conversation,
    folder: Path,
    journal: Journal,
) -> tuple[Outcome, Written | None]:
    began = time.monotonic()
    async with _opened(settings, folder) as deployment:
        journal.append(_manifest(settings, deployment, order, journal))
        async with _others(settings, flags, order, folder) as (hops, stock):
            others = (hops | dict(deployment.roles), stock)
            outcome = await _inquire(settings, order, chat, deployment, journal, others)
        for state in await patch_states(deployment, settings.file.patches):
            journal.append(state)
        written = _written(folder, outcome, settings, deployment, order, chat)
    for finding in findings_of(outcome, journal):
        journal.append(finding)
    took_s = time.monotonic() - began
    journal.append(verdict_of(outcome, deployment.client.caps.spent, took_s))
    return outcome, written


async def _inquire(
    settings: Settings,
    order: Order,
    chat: Conversation,
    deployment: Deployment,
    journal: Journal,
    others: tuple[Others, Others],
) -> Outcome:
    desk = Desk(
        deployment.client,
        _judge(order, chat),
        journal=journal,
        redactor=settings.redactor,
        most_requests=order.requests,
        most_seconds=order.seconds,
        seed=settings.seed,
        seeded=deployment.capabilities.has("seed"),
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
    except Spent as spent:
        if cap := str(spent).replace("--fidelity-", "--"):
            raise HarnessError(
                f"the chat cannot be replayed within the caps of the run: {cap}, or give a shorter"
                " chat or a smaller max_tokens in it"
            ) from None
        bound = f"{order.requests} requests or {order.seconds:g} s"
        raise HarnessError(
            f"a bound was reached before the chat was replayed ({bound}): raise --requests or"
            " --seconds"
        ) from None


def _judge(order: Order, chat: Conversation) -> Judge:
    """Return what the command line expects, else what the file says, else what the chat tells."""
    if order.expect or order.reject:
        return Judge(expect=order.expect, reject=order.reject)
    if chat.expect or chat.reject:
        return Judge(expect=chat.expect, reject=chat.reject)
    fact = fact_of(chat)
    return Judge(expect=(fact,), guessed=True) if fact else Judge()


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
) -> AsyncIterator[tuple[Others, Others]]:
    """Open the other hops and the stock deployment, each within its own settings."""
    async with contextlib.AsyncExitStack() as stack:
        hops: Others = {}
        for url in order.hops:
            beside = _settings_of(settings, flags, url)
            try:
                hops[url] = await stack.enter_async_context(_opened(beside, None))
            except HarnessError as error:  # a worker may answer through its router alone
                hops[url] = str(error)
        stock: Others = {}
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
