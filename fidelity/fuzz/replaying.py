"""`fidelity replay SCRIPT.json`: plays a script again, by pytest like everything else."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fidelity.fuzz.abilities import can_of
from fidelity.fuzz.judging import finding_of, null_finding_of
from fidelity.fuzz.script import read_script
from fidelity.fuzz.trying import script_probe

if TYPE_CHECKING:
    from fidelity.measure import Measure

_TEST = """from pathlib import Path

from fidelity.fuzz.replaying import hold_script


def test_replay(measure):
    \"\"\"Each answer of the script is what it is alone.\"\"\"
    hold_script(measure, Path({path!r}))
"""


def hold_script(measure: Measure, path: Path) -> None:
    """Play a script and claim that each of its answers is what it is alone.

    Raises:
        ConfigError: it is no script.
        NotApplicable: it needs traffic that is not allowed here.
        Violation: an answer differs; EndpointError: it could not be measured.
    """
    script = read_script(path)
    measure.allow(script.traffic)
    can = can_of(measure.deployment, measure.settings)
    recipe = {"builder": "script file", "file": path.name}
    trials = measure.ask([script_probe(script, can, key=path.stem, recipe=recipe)])
    measure.decide(
        finding_of(measure, trials, reason=trials[0].error, what=f"{script.requests} requests"),
        null_finding_of(measure, trials),
    )


@contextlib.contextmanager
def test_of(path: Path) -> Iterator[Path]:
    """Yield a test file that plays a script.

    Raises:
        ConfigError: it is no script.
    """
    read_script(path)
    with tempfile.TemporaryDirectory(prefix="fidelity-replay-") as name:
        test = Path(name) / "test_script.py"
        test.write_text(_TEST.format(path=str(path.resolve())), encoding="utf-8")
        yield test
