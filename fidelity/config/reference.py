"""The reference of fidelity.toml in Markdown: every key of every table, with an example."""

from fidelity.config.keys import Key, Keys, Shape
from fidelity.config.tables import TABLES

BEGIN = "<!-- keys: written by `fidelity schema --reference`, do not edit below -->"


def reference_text() -> str:
    """Return the tables of keys, as docs/configuration.md holds them behind `BEGIN`."""
    return "\n".join([BEGIN, *(line for keys in TABLES for line in _table(keys))]) + "\n"


def _table(keys: Keys) -> list[str]:
    title = keys.title if keys.title.startswith("the ") else f"`{keys.title}`"
    return [
        "",
        f"### {title}",
        "",
        f"{keys.help}.",
        "",
        "| key | accepts | example | says |",
        "|---|---|---|---|",
        *(_row(key) for key in keys.keys),
    ]


def _row(key: Key) -> str:
    example = f"`{_cell(key.name)} = {_cell(key.example)}`" if key.example else ""
    default = f" (default {_cell(str(key.default))})" if key.default not in (None, "") else ""
    return f"| `{key.name}` | {_cell(_accepts(key))}{default} | {example} | {_cell(key.help)} |"


def _accepts(key: Key) -> str:
    if key.of is not None:
        return {
            Shape.TABLE: "a table",
            Shape.NAMED: "one table a name",
            Shape.ARRAY: "tables, each under `[[…]]`",
        }[key.shape]
    what = key.kind.accepted if key.kind is not None else ""
    return {
        Shape.LIST: f"a list, each {what}",
        Shape.MAP: f"a table, each value {what}",
    }.get(key.shape, what)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
