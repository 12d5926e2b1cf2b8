"""Keys never reach disk: one redactor per run, asked before anything is stored or shown.

It knows the secret values of this run, and the names under which servers repeat secrets (SGLang's
server info, for one, holds the server's own API key).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"(?:api[-_]?key|authorization|password|passwd|secret|cookie|credential|private[-_]?key"
    r"|(?:access|auth|bearer|admin|hf|refresh|session)[-_]?token)",
    re.IGNORECASE,
)
_SHORTEST_SECRET = 4
"""Shorter values ("x", "sk") would redact ordinary words; they protect nothing anyway."""
_SHORTEST_BY_NAME = 12
"""Of an environment variable that only sounds secret; its value may be an ordinary word."""


def is_secret_name(name: str) -> bool:
    """True for a header, key or flag under which a secret is kept; `api_key_env` holds a name."""
    return bool(_SECRET_NAME.search(name)) and not re.search(r"[-_]env$", name)


def secret_values(arguments: Sequence[str]) -> list[str]:
    """Return the values that secret flags of an argument list carry (`--api-key X` gives X)."""
    found: list[str] = []
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if not argument.startswith("-") or not is_secret_name(name):
            continue
        following = arguments[position + 1 : position + 2]
        found += [value] if equals else [word for word in following if not word.startswith("-")]
    return found


def environment_secrets(env: Mapping[str, str]) -> list[str]:
    """Return every value with a secret's name: a launched server inherits and may print them."""
    return [
        value
        for name, value in env.items()
        if is_secret_name(name) and len(value) >= _SHORTEST_BY_NAME
    ]


class Redactor:
    """Replaces the secrets of one run by a mark. Immutable; safe to share between threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Keep the values to hide; longer ones are replaced first."""
        values = {secret.strip() for secret in secrets}
        kept = [value for value in values if len(value) >= _SHORTEST_SECRET]
        self._secrets = tuple(sorted(kept, key=len, reverse=True))

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def text(self, text: str) -> str:
        """Return the text without any of this run's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def arguments(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Return an argument list whose secret flags (`--api-key X`, `--api-key=X`) lost X."""
        shown: list[str] = []
        hide_next = False
        for argument in arguments:
            name, equals, _ = argument.partition("=")
            if hide_next and not argument.startswith("-"):
                shown.append(REDACTED)
                hide_next = False
            elif argument.startswith("-") and is_secret_name(name):
                shown.append(f"{name}={REDACTED}" if equals else name)
                hide_next = not equals
            else:
                shown.append(self.text(argument))
                hide_next = False
        return tuple(shown)

    def json(self, value: Any) -> Any:
        """Return a copy of a JSON value without secrets, by value and by key name."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return {
                str(key): REDACTED
                if item and isinstance(item, str) and is_secret_name(str(key))
                else self.json(item)
                for key, item in value.items()
            }
        return value
