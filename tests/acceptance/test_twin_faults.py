"""The faults made for twins turn exactly the twins red that their files name.

Faults whose twins are not the same share a server: what is red must be all that they name together.
`--each-fault` runs every fault on a server of its own, a few minutes each.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from product import ROOT, finished

from engine.faults import FOLDER, load_fault
from fidelity.words import Ladder, Outcome, RunVerdict

pytestmark = pytest.mark.acceptance

NAMES = [p.stem for p in sorted(FOLDER.glob("[a-z]*.py")) if load_fault(p.stem).twins]
SUITES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "suites").glob("test_twins_*.py"))
NOISE = Path(__file__).with_name("noisy_logits.py")
POOL = "--launch-arg=--max-total-tokens=16384"
"""A small pool is flooded sooner."""
LANES = 2


def reached(name):
    """Twins that the fault reaches, faintly or not."""
    fault = load_fault(name)
    return {*fault.twins, *fault.faint_twins}


def groups(names):
    """Share the faults out so that no twin is named twice in a group."""
    found = []
    for name in names:
        twins = reached(name)
        for group in found:
            if not twins & {twin for other in group for twin in reached(other)}:
                group.append(name)
                break
        else:
            found.append([name])
    return {"+".join(group): group for group in found}


GROUPS = groups(NAMES)


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """One run of the twins for each group of faults, as futures by its name."""
    folder = tmp_path_factory.mktemp("twins")
    chosen = [item.callspec.params["group"] for item in request.session.items if _asks_runs(item)]

    def run(group, number):
        faults = [f"--launch-arg=--fault={name}" for name in group.split("+")]
        return finished(
            "--deployment=embedded",
            POOL,
            *faults,
            *SUITES,
            folder=folder / str(number),
            name=f"twins: {group}"[:60],
        )

    with ThreadPoolExecutor(LANES) as lanes:
        futures = {
            group: lanes.submit(run, group, number)
            for number, group in enumerate(dict.fromkeys(chosen))
        }
        yield futures
        for future in futures.values():
            future.cancel()


def _asks_runs(item):
    return item.path == Path(__file__) and "runs" in getattr(item, "fixturenames", ())


def pytest_generate_tests(metafunc):
    if "group" in metafunc.fixturenames:
        each = metafunc.config.getoption("each_fault", default=False)
        metafunc.parametrize("group", NAMES if each else list(GROUPS))


def twins_of(ran, *outcomes):
    """Names of the twins that came out so."""
    found = [f for f in ran.findings.values() if f.outcome in outcomes]
    return {f.profile["twin"] if f.profile else f.claim for f in found}


def test_there_is_a_fault_for_each_kind_of_twin():
    assert len(NAMES) >= 8
    named = set.union(*(set(load_fault(name).twins) for name in NAMES))
    kinds = {"cached", "batched", "chunked", "streamed", "evicted", "decoded", "aged", "turned"}
    assert named >= kinds
    known = set(re.findall(r'^    name="(\w+)"', _sources(), flags=re.MULTILINE))
    assert named <= known
    assert all(load_fault(name).report.startswith("https://github.com/") for name in NAMES)


def _sources():
    return "\n".join(p.read_text() for p in (ROOT / "fidelity" / "twins").glob("*.py"))


def test_faults_turn_the_twins_red_that_they_name_and_no_other(group, runs):
    ran = runs[group].result()
    faults = [load_fault(name) for name in group.split("+")]
    expected = {twin for fault in faults for twin in fault.twins}
    faint = {twin for fault in faults for twin in fault.faint_twins}
    assert twins_of(ran, Outcome.FAIL) - faint == expected, ran.told()
    assert twins_of(ran, Outcome.INCONCLUSIVE) <= faint, ran.told()
    assert twins_of(ran, Outcome.PASS) & faint == set(), ran.told()
    assert twins_of(ran, Outcome.ERROR, Outcome.NOT_APPLICABLE) == set(), ran.told()
    suites = {suite for fault in faults for suite in fault.suites if "_twins_" in suite}
    assert ran.suites_with(Outcome.FAIL) == suites
    assert ran.verdict.verdict is RunVerdict.UNFAITHFUL
    assert ran.code == 1


def test_a_server_made_noisy_is_a_finding_and_no_wider_floor(tmp_path):
    ran = finished(
        "--deployment=embedded",
        f"--launch-arg=--fault={NOISE}",
        *("-k", "prefilling_the_same_tokens or cached_prefix"),
        *SUITES,
        folder=tmp_path / "noisy",
        name="twins: noisy logits",
    )
    assert len(ran.findings) == 2, ran.told()
    for finding in ran.findings.values():
        assert finding.outcome is Outcome.FAIL, ran.told()
        assert finding.ladder not in {None, Ladder.EXACT, Ladder.ROUNDING}
    # six tokens that the model is sure of hold few uncertain ones: the long answers bear the floor
    long = next(f for claim, f in ran.findings.items() if "prefilling_the_same_tokens" in claim)
    floor = next(part for part in long.parts if "identical requests" in part.title)
    assert floor.outcome is Outcome.FAIL
    assert floor.effect > 0.05
