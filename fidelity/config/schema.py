"""fidelity.toml as a JSON schema, for editors; the reader itself does not use it.

Made from the tables that the reader uses, so that both accept the same keys.
"""

import json
from typing import Any

from fidelity.config.keys import Key, Keys, Shape
from fidelity.config.tables import ROOT

DRAFT = "http://json-schema.org/draft-07/schema#"
"""The draft that TOML language servers know best."""


def schema_text() -> str:
    """Return the schema as it is committed: docs/fidelity.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the schema of the whole file."""
    return {"$schema": DRAFT, "title": "fidelity.toml", **_table(ROOT)}


def _table(keys: Keys) -> dict[str, Any]:
    return {
        "type": "object",
        "description": keys.help,
        "additionalProperties": False,
        "properties": {key.name: _key(key) for key in keys.keys},
    }


def _key(key: Key) -> dict[str, Any]:
    described: dict[str, Any] = {"description": key.help}
    if key.default not in (None, ""):
        described["default"] = key.default
    return {**_shape(key), **described}


def _shape(key: Key) -> dict[str, Any]:
    of = _table(key.of) if key.of is not None else {}
    value = dict(key.kind.schema) if key.kind is not None else {}
    match key.shape:
        case Shape.VALUE:
            return value
        case Shape.LIST:
            return {"type": "array", "items": value}
        case Shape.MAP:
            return {"type": "object", "additionalProperties": value}
        case Shape.TABLE:
            return of
        case Shape.NAMED:
            return {"type": "object", "additionalProperties": of}
        case Shape.ARRAY:
            return {"type": "array", "items": of}
