"""The shape of fidelity.toml as data: which tables and keys there are, what each one accepts.

The reader, the JSON schema for editors and the reference in docs/configuration.md come from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fidelity.config.config_table import Table
from fidelity.config.kinds import Kind
from fidelity.config.redaction import is_secret_name, secret_values

_EXPORT_IT = (
    "a secret is not written into the file: export it and let the command read its environment"
    ' ("$NAME" in `sh -c`), or give it with FIDELITY_LAUNCH_ARG'
)


class Shape(Enum):
    """How the value of a key is written."""

    VALUE = "one value"
    LIST = "a list of values"
    MAP = "a table of names and values"
    TABLE = "a table"
    NAMED = "one table a name"
    ARRAY = "a list of tables, [[…]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a table.

    Attributes:
        name: as written.
        help: what it says, one sentence without a full stop at its end.
        example: a value in TOML; for tables, the table itself stands in their own example.
        kind: of the value, of each item, or of each value of a map; None for tables.
        default: when the file has none.
        shape: how it is written.
        of: the table's own keys.
        no_secrets: refuse secrets: by the name of a map's entry, by the option or the name that
            stands before them in a list of arguments.
    """

    name: str
    help: str
    example: str = ""
    kind: Kind | None = None
    default: Any = None
    shape: Shape = Shape.VALUE
    of: "Keys | None" = None
    no_secrets: bool = False
    name_kind: Kind | None = None
    """Of the names of a map; None takes any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of one kind of table; `title` is how its header is written."""

    title: str
    help: str
    keys: tuple[Key, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the keys, in order."""
        return tuple(key.name for key in self.keys)


@dataclass(slots=True)
class Section:
    """A table that was read: its values by key, and the table itself, to say where they stand."""

    table: Table
    values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key, its default when the file has none."""
        return self.values[key]

    def has(self, key: str) -> bool:
        """Tell whether the file itself sets a key."""
        return key in self.table.names


def read(table: Table, keys: Keys) -> Section:
    """Read a table strictly.

    Raises:
        ConfigError: an unknown key, or a value that is not accepted; names file, line and key.
    """
    section = Section(table, {key.name: _value(table, key) for key in keys.keys})
    table.finish()
    return section


def _value(table: Table, key: Key) -> Any:
    match key.shape:
        case Shape.VALUE:
            return table.take(key.name, _kind(key), key.default)
        case Shape.LIST:
            return _listed(table, key)
        case Shape.MAP:
            return _mapped(table.table(key.name), key)
        case Shape.TABLE:
            return read(table.table(key.name), _keys(key))
        case Shape.NAMED:
            named = table.table(key.name)
            return {name: read(named.table(name), _keys(key)) for name in named.names}
        case Shape.ARRAY:
            return [read(entry, _keys(key)) for entry in table.tables(key.name)]


def _listed(table: Table, key: Key) -> Any:
    if key.name not in table.names:
        table.know((key.name,))
        return () if key.default is None else key.default
    found = table.take_list(key.name, _kind(key))
    if key.no_secrets and secret_values(found):
        raise table.refuse(key.name, _EXPORT_IT)
    return found


def _mapped(table: Table, key: Key) -> Mapping[str, Any]:
    found = {name: table.take(name, _kind(key)) for name in table.names}
    if key.name_kind is not None:
        for name in found:
            _check_name(table, name, key.name_kind)
    for name, value in found.items() if key.no_secrets else ():
        if is_secret_name(name) or _holds_secret(value):
            raise table.refuse(
                name, "a secret is not written into the file; export it before the run instead"
            )
    return found


def _check_name(table: Table, name: str, kind: Kind) -> None:
    try:
        kind.read(name)
    except ValueError as error:
        raise table.refuse(name, f"expected {kind.accepted} as its name ({error})") from None


def _holds_secret(value: Any) -> bool:
    """Tell whether a value holds a secret: a text beside its name, a table under it."""
    if isinstance(value, str):
        return bool(secret_values([value]))
    if isinstance(value, Mapping):
        return any(
            (isinstance(item, str) and item and is_secret_name(str(name))) or _holds_secret(item)
            for name, item in value.items()
        )
    return isinstance(value, list) and any(_holds_secret(item) for item in value)


def _kind(key: Key) -> Kind:
    if key.kind is None:
        raise TypeError(f"the key {key.name} has no kind")
    return key.kind


def _keys(key: Key) -> Keys:
    if key.of is None:
        raise TypeError(f"the table {key.name} has no keys")
    return key.of
