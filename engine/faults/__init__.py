"""Named bugs that can be switched on, to measure whether a harness sees them.

The contract of a fault file and the points where one can be hooked in are in README.md.
"""

import difflib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine.errors import FaultError

if TYPE_CHECKING:
    from engine.core import Engine

FOLDER = Path(__file__).parent
RUNGS = ("exact", "rounding", "drift", "selection", "structural")
_TEXTS = ("NAME", "KIND", "RUNG", "REPORT", "TRIGGER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a fault file declares.

    `suites`: stems of the suite files expected to see it; `twins`: names of the twins in them;
    `faint_suites`, `faint_twins`: those that it reaches so faintly that a quick run need not decide
    them: they turn red or stay undecided, and never pass.
    """

    name: str
    kind: str
    rung: str
    report: str
    trigger: str
    patch: str | None
    suites: tuple[str, ...]
    launch: tuple[str, ...]
    twins: tuple[str, ...]
    faint_suites: tuple[str, ...]
    faint_twins: tuple[str, ...]
    path: Path
    module: ModuleType

    def as_dict(self) -> dict[str, Any]:
        """Return the declared fields, for `python -m engine faults --json`."""
        fields = ("name", "kind", "rung", "report", "trigger", "patch", "suites", "launch", "twins")
        return {field: getattr(self, field) for field in (*fields, "faint_suites", "faint_twins")}


def fault_names() -> list[str]:
    """Names of the faults in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def list_faults() -> list[dict[str, Any]]:
    """Every fault in this folder as a JSON-ready object."""
    return [{**load_fault(name).as_dict()} for name in fault_names()]


def load_fault(name_or_file: str) -> Fault:
    """Read a fault by its name in this folder, or by the path of a file.

    Raises:
        FaultError: there is none of that name, or the file breaks the contract.
    """
    path = _find(name_or_file)
    spec = importlib.util.spec_from_file_location(f"engine_fault_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FaultError(f"The fault file {path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in a fault file look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise FaultError(f"The fault file {path} cannot be loaded: {error!r}.") from error
    return _read(module, path)


def install_fault(fault: Fault, engine: "Engine") -> None:
    """Install a fault, unless the patch in which it lives is off.

    Raises:
        FaultError: its `install` failed.
    """
    if fault.patch is not None and not _patch_is_on(engine, fault.patch):
        return
    try:
        fault.module.install(engine)
    except Exception as error:
        raise FaultError(f"The fault {fault.name} could not be installed: {error!r}.") from error


def _patch_is_on(engine: "Engine", name: str) -> bool:
    return any(p["name"] == name and p["state"] == "on" for p in engine.ops.patch_states())


def _find(name_or_file: str) -> Path:
    if name_or_file.endswith(".py") or "/" in name_or_file:
        path = Path(name_or_file)
        if not path.is_file():
            raise FaultError(f"There is no fault file {path}.")
        return path
    if name_or_file in fault_names():
        return FOLDER / f"{name_or_file}.py"
    close = difflib.get_close_matches(name_or_file, fault_names(), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise FaultError(
        f"unknown fault {name_or_file!r}{hint} Known: {', '.join(fault_names()) or 'none'}."
    )


def _read(module: ModuleType, path: Path) -> Fault:
    missing = [n for n in (*_TEXTS, "PATCH", "SUITES", "install") if not hasattr(module, n)]
    if missing:
        raise FaultError(f"The fault file {path} does not define {', '.join(missing)}.")
    wrong = [n for n in _TEXTS if not isinstance(getattr(module, n), str)]
    if wrong:
        raise FaultError(f"The fault file {path} must set {', '.join(wrong)} to text.")
    if module.RUNG not in RUNGS:
        raise FaultError(
            f"The fault file {path} sets RUNG to {module.RUNG!r}, but must be one of "
            f"{', '.join(RUNGS)}."
        )
    return Fault(
        name=module.NAME,
        kind=module.KIND,
        rung=module.RUNG,
        report=module.REPORT,
        trigger=module.TRIGGER,
        patch=module.PATCH,
        suites=tuple(sorted(module.SUITES)),
        launch=tuple(getattr(module, "LAUNCH", ())),
        twins=tuple(sorted(getattr(module, "TWINS", ()))),
        faint_suites=tuple(sorted(getattr(module, "FAINT_SUITES", ()))),
        faint_twins=tuple(sorted(getattr(module, "FAINT_TWINS", ()))),
        path=path,
        module=module,
    )
