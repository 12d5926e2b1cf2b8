"""Makes the [[patch]] entries into specs, and refuses those that contradict themselves."""

import re
from collections.abc import Sequence
from pathlib import Path

from fidelity.config.keys import Section
from fidelity.config.patch_spec import Condition, PatchSpec, Toggle
from fidelity.config.placeholders import PLACEHOLDERS, VALUE, check_placeholders

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_SOURCES = ("patches", "server_info", "metric", "log")


def patches_of(sections: Sequence[Section], folder: Path) -> dict[str, PatchSpec]:
    """Return the patches by name, in the order of the file.

    Raises:
        ConfigError: names file, line and key.
    """
    found: dict[str, PatchSpec] = {}
    for section in sections:
        patch = _patch(section, folder)
        if patch.name in found:
            raise section.table.refuse("name", f"a second [[patch]] {patch.name!r}")
        found[patch.name] = patch
    return found


def _patch(section: Section, folder: Path) -> PatchSpec:
    table, name = section.table, section["name"]
    if name is None or not _NAME.match(name):
        raise table.refuse("name", "a patch has a name of letters, digits, dot, dash, underscore")
    for key in ("files", "microtest"):
        for text in (section[key],) if key == "microtest" else section[key]:
            if Path(text).is_absolute() or ".." in Path(text).parts:
                raise table.refuse(key, f"a path below {folder}, found {text!r}")
    patch = PatchSpec(
        name=name,
        files=section["files"],
        commit=section["commit"],
        phase=section["phase"],
        unconditional=section["unconditional"],
        on=Toggle(flags=section["on"]["flags"], env=section["on"]["env"]),
        off=Toggle(flags=section["off"]["flags"], env=section["off"]["env"]),
        microtest=section["microtest"],
        suites=section["suites"],
        active_when=_condition(section["active_when"]) if section.has("active_when") else None,
    )
    for key, toggle in (("on", patch.on), ("off", patch.off)):
        texts = [("flags", text) for text in toggle.flags]
        texts += [("env", text) for text in toggle.env.values()]
        check_placeholders(section[key], texts, (VALUE, *PLACEHOLDERS), any_role=True)
    if patch.unconditional and patch.can_toggle:
        raise table.refuse("unconditional", "a patch with a toggle (on, off) is not unconditional")
    return patch


def _condition(section: Section) -> Condition:
    table = section.table
    sources = [key for key in _SOURCES if section.has(key)]
    if len(sources) != 1:
        said = " and ".join(sources) or "none"
        raise table.refuse(
            sources[1] if sources else "", f"one of {', '.join(_SOURCES)} is given, found {said}"
        )
    source = sources[0]
    if source == "log":
        _check_pattern(section)
    for key in ("equals", "at_least"):
        if section.has(key) and source in (("log",) if key == "equals" else ("log", "patches")):
            raise table.refuse(key, f"says nothing beside `{source}`")
    return Condition(
        **{source: section[source]},
        equals=section["equals"],
        at_least=section["at_least"],
        role=section["role"],
    )


def _check_pattern(section: Section) -> None:
    try:
        re.compile(section["log"])
    except re.error as error:
        raise section.table.refuse("log", f"not a regular expression: {error}") from error
