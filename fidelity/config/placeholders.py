"""Which {words} a command of fidelity.toml may hold, and how each is found in a text."""

import re
from collections.abc import Iterable

from fidelity.config.deployment_spec import ROLES
from fidelity.config.keys import Section
from fidelity.config.kinds import nearest

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z][A-Za-z0-9_.-]*)\}")
"""JSON in an argument has quotes, and ${NAME} is a shell's."""
PLACEHOLDERS = ("python", "port", "bootstrap_port")
ROLE_PLACEHOLDERS = ("url", "port", "host", "bootstrap_port")
"""Of another role, as {ROLE.url}."""
_OF_ROLE = re.compile(
    rf"(?:{'|'.join(ROLES)})(?:-[1-9][0-9]{{0,2}})?\.(?:{'|'.join(ROLE_PLACEHOLDERS)})\Z"
)
VALUE = "value"
"""Of a patch's toggle: the VALUE of NAME=VALUE."""


def placeholders_of(roles: Iterable[str]) -> list[str]:
    """Return what a command may hold, of a deployment with these roles."""
    return [*PLACEHOLDERS, *(f"{role}.{what}" for role in roles for what in ROLE_PLACEHOLDERS)]


def check_placeholders(
    section: Section,
    texts: Iterable[tuple[str, str]],
    known: Iterable[str],
    *,
    any_role: bool = False,
) -> None:
    """Refuse a placeholder that stands for nothing: it would reach the command as it is.

    Args:
        section: that holds the texts.
        texts: (key, text) pairs.
        known: placeholders.
        any_role: which roles there will be is not known: {ROLE.url} of any is taken.

    Raises:
        ConfigError: names file, line, key and the nearest match.
    """
    names = list(known)
    for key, text in texts:
        for placeholder in PLACEHOLDER.findall(text):
            if placeholder not in names and not (any_role and _OF_ROLE.match(placeholder)):
                shown = ", ".join("{" + name + "}" for name in names)
                hint = nearest(placeholder, names) or nearest(placeholder.lower(), names)
                raise section.table.refuse(
                    key, f"unknown placeholder {{{placeholder}}}{hint}. Known: {shown}"
                )
