"""Microtests of patches: their settings, one examination a patch, and the verdicts at the end."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # `kernels` and `reference` are never installed
    sys.path.insert(0, str(ROOT))

import hypothesis  # noqa: E402
import torch  # noqa: E402

from fidelity.config import options  # noqa: E402
from fidelity.config.settings import MicrotestSettings, resolve_microtests  # noqa: E402
from fidelity.errors import ConfigError  # noqa: E402
from fidelity.microtests.findings import line_of  # noqa: E402
from fidelity.microtests.results import HARVESTED, SYNTHETIC, PatchReport  # noqa: E402
from suites.patches.checkpoint import Checkpoint  # noqa: E402
from suites.patches.dumped_layers import NotHarvestedError  # noqa: E402
from suites.patches.examination import Examination, Examinations  # noqa: E402
from suites.patches.harvest import Harvest  # noqa: E402
from suites.patches.whole_microtest import Asked, Part, closing_sentence, exit_code  # noqa: E402
from suites.patches.whole_model import NANO  # noqa: E402

BAD_USAGE = 2
EXAMPLES = {"cpu": 25, "cuda": 8}  # irregular shapes of a patch; each compiles kernels on a GPU
_SILENT = -2
"""-qq: who started this process prints the verdicts, as `fidelity micro` does."""
_ALL = pytest.StashKey[Examinations]()
_ASKED = pytest.StashKey[Asked]()
_REPORTS = pytest.StashKey[list[PatchReport]]()


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the settings once; a device that is not there is refused."""
    try:
        settings = resolve_microtests(options.pytest_flags(config))
    except ConfigError as error:
        pytest.exit(f"fidelity: {error}", BAD_USAGE)
    known = {_patch_of(path) for path in Path(__file__).parent.glob("test_*.py")}
    unknown = {text.partition("=")[0] for text in settings.patch} - known
    if unknown:
        pytest.exit(
            f"fidelity: --fidelity-patch: no microtest of {', '.join(sorted(unknown))}; there are"
            f" {', '.join(sorted(known))}",
            BAD_USAGE,
        )
    if settings.checkpoint is not None:
        try:
            _ = Checkpoint(settings.checkpoint).config
        except ValueError as error:
            pytest.exit(f"fidelity: --fidelity-checkpoint: {error}", BAD_USAGE)
    if settings.device == "cuda" and not torch.cuda.is_available():
        pytest.exit("fidelity: --fidelity-device is cuda, but torch sees no GPU here", BAD_USAGE)
    torch.set_num_threads(1)
    hypothesis.settings.register_profile(
        "microtests",
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=EXAMPLES[settings.device],
    )
    hypothesis.settings.load_profile("microtests")
    config.stash[_ALL] = Examinations(settings)
    config.stash[_ASKED] = Asked(_part_of)


def pytest_report_header(config: pytest.Config) -> str:
    """Say what repeats the run."""
    settings = config.stash[_ALL].settings
    return f"microtests: device {settings.device}, seed {settings.seed}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Count every test of a microtest, whatever is selected of them later."""
    if _is_ours(item):
        item.config.stash[_ASKED].collected(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the patches that were asked for, and of the inputs those that were given."""
    settings = config.stash[_ALL].settings
    wanted = {text.partition("=")[0] for text in settings.patch}
    dropped = [
        item
        for item in items
        if _is_ours(item)
        and (
            (wanted and _patch_of(item.path) not in wanted)
            or (_is_harvested(item) and settings.inputs is None)
            or (_asks_for(item, "checkpoint") and settings.checkpoint is None)
        )
    ]
    if not dropped:
        return
    config.stash[_ASKED].dropped(dropped)
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]


def pytest_collection_finish(session: pytest.Session) -> None:
    """A patch of whose microtest only a part was selected stays undecided."""
    ours = [item for item in session.items if _is_ours(item)]
    partial = session.config.stash[_ASKED].partial(ours, session.config)
    for (patch, source), sentence in partial.items():
        session.config.stash[_ALL].of(patch, source).failed(sentence)


@pytest.fixture(scope="session")
def settings(request: pytest.FixtureRequest) -> MicrotestSettings:
    """Device, seed, and what else the user chose."""
    return request.config.stash[_ALL].settings


@pytest.fixture(scope="module")
def examination(request: pytest.FixtureRequest) -> Examination:
    """Return the examination of the patch that this file is named after."""
    return request.config.stash[_ALL].of(_patch_of(request.path))


@pytest.fixture(scope="session")
def checkpoint(settings: MicrotestSettings) -> Checkpoint:
    """Return the checkpoint that was given; only tests of its own weights ask for it."""
    if settings.checkpoint is None:
        raise ConfigError("tests of a checkpoint's weights need --fidelity-checkpoint")
    return Checkpoint(settings.checkpoint)


@pytest.fixture(scope="session")
def harvest(settings: MicrotestSettings) -> Harvest:
    """Return the dumps that were given; only tests of harvested inputs ask for them."""
    if settings.inputs is None:
        raise ConfigError("harvested inputs need --fidelity-inputs")
    return Harvest(settings.inputs, Checkpoint(settings.checkpoint or NANO))


@pytest.fixture(scope="module")
def harvested(request: pytest.FixtureRequest, harvest: Harvest) -> Examination:
    """Return the examination of this file's patch on harvested inputs."""
    every = request.config.stash[_ALL]
    return every.of(_patch_of(request.path), HARVESTED, harvest.label)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """A test whose inputs do not follow from the dumps is skipped; the verdict says why."""
    try:
        return (yield)
    except NotHarvestedError as error:
        item.config.stash[_ALL].not_harvested(_patch_of(item.path), str(error))
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails leaves its patch undecided, unless a check has convicted it already."""
    report = yield
    if report.failed and _is_ours(item):
        reason = str(call.excinfo.value if call.excinfo else report.longrepr)
        _examination_of(item).failed(f"{item.name}: {reason[:300]}")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge; a patch that is not exonerated is never green, whatever its tests say."""
    reports = session.config.stash[_ALL].conclude()
    session.config.stash[_REPORTS] = reports
    session.exitstatus = exit_code(reports, int(session.exitstatus))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print and store the verdict on each patch."""
    reports = config.stash.get(_REPORTS, [])
    if not reports or config.getoption("verbose") <= _SILENT:
        return
    terminalreporter.section("patches")
    for report in reports:
        terminalreporter.write_line(line_of(report))
    terminalreporter.write_line(f"verdicts: {config.stash[_ALL].folder}")
    if sentence := closing_sentence(reports):
        terminalreporter.write_line(sentence)


def _examination_of(item: pytest.Item) -> Examination:
    return item.config.stash[_ALL].of(*_part_of(item))


def _part_of(item: pytest.Item) -> Part:
    source = HARVESTED if _is_harvested(item) else SYNTHETIC
    return Part(_patch_of(item.path), source)


def _is_harvested(item: pytest.Item) -> bool:
    return _asks_for(item, "harvested")


def _asks_for(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


def _is_ours(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents


def _patch_of(path: Path) -> str:
    return path.stem.removeprefix("test_")
