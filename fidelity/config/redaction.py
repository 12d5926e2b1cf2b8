"""Keys never reach disk: one redactor per run, asked before anything is stored or shown.

It knows the secret values of this run, and the names under which servers repeat secrets (SGLang's
server info, for one, holds the server's own API key).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"(?:api[-_]?key|authorization|password|passwd|passphrase|secret|cookie|credential"
    r"|private[-_]?key|(?:access|auth|bearer|admin|hf|refresh|session)[-_]?token)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(?:^|[-_])(?:env|file|path)$", re.IGNORECASE)
"""`api_key_env`, `--api-key-file`: where a secret is, not the secret."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HARMLESS_BEFORE: Mapping[str, frozenset[str]] = {
    "token": frozenset(
        [
            "audio",
            "begin",
            "bos",
            "cls",
            "end",
            "eos",
            "first",
            "image",
            "last",
            "mask",
            "max",
            "min",
            "new",
            "next",
            "num",
            "pad",
            "sep",
            "special",
            "start",
            "stop",
            "sub",
            "think",
            "tool",
            "unk",
            "video",
        ]
    ),
    "key": frozenset(
        [
            "cache",
            "foreign",
            "group",
            "hash",
            "lookup",
            "order",
            "partition",
            "primary",
            "public",
            "routing",
            "shard",
            "sort",
        ]
    ),
    "auth": frozenset(["disable", "enable", "no", "require", "skip", "use", "without"]),
    "jwt": frozenset(),
    "pass": frozenset(
        ["backward", "first", "forward", "multi", "one", "per", "second", "single", "two"]
    ),
}
"""Last words of names that hold a secret, unless one of these words stands before them."""
_TEXTS_OF_MODELS = frozenset({"token", "key"})
"""As names in a server's JSON these hold a piece of text: `token` of each logprob, for one."""
_OPTION = re.compile(r"(?:[a-z]+(?:-[0-9]+)?:)?(-[^=\s]*)")
"""An option, of one role where the role stands before it."""
_ROLE = re.compile(r"[a-z]+(?:-[0-9]+)?:")
_NAMED = re.compile(
    r"(-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)[\"']?(\s*[:=]\s*|\s+)(?:(?:bearer|basic|token)\s+)?"
    r"(?=[\"']?([^\s\"'&,;}]+))",
    re.IGNORECASE,
)
_REFERENCES = "${"
"""With these begins what stands for a value: a variable of a shell, a placeholder."""
_ALL_USERINFO = re.compile(r"^(\s*[a-z+]*:?/{0,2}).*@", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(r"([?#]).*", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_USERINFO = re.compile(r"://[^/\s:@]*:([^\s]+)@")
_SHORTEST_SECRET = 4
"""Shorter values ("x", "sk") would redact ordinary words; they protect nothing anyway."""
_SHORTEST_BY_NAME = 12
"""Of an environment variable that only sounds secret; its value may be an ordinary word."""


def is_secret_name(name: str) -> bool:
    """True for a header, key or flag under which a secret is kept; `api_key_env` holds a name."""
    if _REFERENCE.search(name):
        return False
    if _SECRET_NAME.search(name):
        return True
    *before, last = [word.lower() for word in _WORD.findall(name)] or [""]
    harmless = _HARMLESS_BEFORE.get(last)
    return harmless is not None and not (before and before[-1] in harmless)


def secret_values(arguments: Sequence[str]) -> list[str]:
    """Return the secrets that an argument list carries, in whichever of its usual ways.

    `--api-key X`, `--api-key=X`, `decode:--api-key=X`, `HF_TOKEN=X`, `Authorization: Bearer X`,
    the same inside one text (a shell line, JSON), `http://user:X@host`, `?key=X`. A reference to
    the environment (`$X`) and a placeholder (`{port}`) are none.
    """
    return [value for value in _beside_names(arguments) if value[0] not in _REFERENCES]


def secret_references(arguments: Sequence[str]) -> list[str]:
    """Return the variables that stand where `secret_values` finds secrets: X of `--api-key $X`."""
    found = (_VARIABLE.match(value) for value in _beside_names(arguments))
    return [variable[1] for variable in found if variable is not None]


def _beside_names(arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    for position, argument in enumerate(arguments):
        if _awaits_secret(argument):
            following = arguments[position + 1 : position + 2]
            words = [_without_role(word) for word in following if not _OPTION.match(word)]
            found += [word for word in words if word]
        else:
            found += [argument[start:end] for start, end in _spans(argument)]
    return found


def _awaits_secret(argument: str) -> bool:
    """Tell whether the next argument is the value of a secret option."""
    option = _OPTION.fullmatch(argument)
    return option is not None and is_secret_name(option[1])


def _without_role(word: str) -> str:
    return _ROLE.sub("", word, count=1)


def _spans(text: str) -> list[tuple[int, int]]:
    """Return where secrets stand in one text beside their names, in order."""
    found = [match.span(1) for match in _USERINFO.finditer(text)]
    at = 0
    while named := _NAMED.search(text, at):
        at = named.end()
        name, between, _ = named.groups()
        if (between.strip() or name.startswith("-")) and is_secret_name(name):
            found.append(named.span(3))
    apart: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if not (apart and start < apart[-1][1]):
            apart.append((start, end))
    return apart


def without_url_secrets(text: str) -> str:
    """Return a text that should have been a URL without user, password, query and fragment."""
    shown = _ALL_USERINFO.sub(rf"\1{REDACTED}@", text)
    return _QUERY.sub(rf"\1{REDACTED}", shown)


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
        """Return an argument list without what `secret_values` finds in it, however short."""
        shown: list[str] = []
        hide_next = False
        for argument in arguments:
            if hide_next and not _OPTION.match(argument):
                shown.append(REDACTED)
                hide_next = False
                continue
            hide_next = _awaits_secret(argument)
            text = argument
            for start, end in reversed([] if hide_next else _spans(argument)):
                if text[start] not in _REFERENCES:
                    text = text[:start] + REDACTED + text[end:]
            shown.append(self.text(text))
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
                if item
                and isinstance(item, str)
                and str(key) not in _TEXTS_OF_MODELS
                and is_secret_name(str(key))
                else self.json(item)
                for key, item in value.items()
            }
        return value
