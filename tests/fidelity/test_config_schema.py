"""The JSON schema and the reference say what the reader accepts: all three come from one table."""

import re
import tomllib
from pathlib import Path

import pytest

from fidelity.config.config_file import read_config
from fidelity.config.config_table import Lines, Table
from fidelity.config.keys import Shape, read
from fidelity.config.reference import BEGIN, reference_text
from fidelity.config.schema import schema, schema_text
from fidelity.config.tables import TABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_committed_schema_is_the_one_that_the_command_writes():
    written = (DOCS / "fidelity.schema.json").read_text(encoding="utf-8")
    assert written == schema_text(), "make schema"


def test_the_committed_reference_is_the_one_that_the_command_writes():
    whole = (DOCS / "configuration.md").read_text(encoding="utf-8")
    reference = whole[whole.index(BEGIN) :]
    assert reference == reference_text(), "make schema"


def test_the_file_of_this_repository_names_the_schema():
    first = (ROOT / "fidelity.toml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "#:schema docs/fidelity.schema.json"


@pytest.mark.parametrize("keys", TABLES, ids=lambda keys: keys.title)
def test_every_key_has_an_example_that_the_reader_takes(keys):
    plain = [key for key in keys.keys if key.of is None]
    assert all(key.example for key in plain)
    assert all(key.help and not key.help.endswith(".") for key in keys.keys)
    for key in plain:
        text = f"{key.name} = {key.example}"
        section = read(Table(tomllib.loads(text), (), Lines.of(Path("x"), text)), keys)
        assert section[key.name] not in (None, (), {})


def _accepts(schema_, value):
    """Judge a value by the few words of JSON schema that we use."""
    if "enum" in schema_:
        return value in schema_["enum"]
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    types = schema_.get("type", list(kinds))
    names = [types] if isinstance(types, str) else types
    if not any(_is(value, name, kinds) for name in names):
        return False
    if isinstance(value, dict):
        properties = schema_.get("properties", {})
        more = schema_.get("additionalProperties", True)
        return all(
            _accepts(properties[k], v) if k in properties else more and _accepts(more, v)
            for k, v in value.items()
            if k in properties or more is not True
        ) and set(schema_.get("required", ())) <= set(value)
    if isinstance(value, list):
        return all(_accepts(schema_.get("items", {}), item) for item in value)
    if isinstance(value, str):
        pattern = schema_.get("pattern", "")
        return bool(re.search(pattern, value)) and len(value) >= schema_.get("minLength", 0)
    low, high = schema_.get("minimum", value), schema_.get("maximum", value)
    return low <= value <= high


def _is(value, name, kinds):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, kinds[name])


GOOD = {
    "whole": (ROOT / "fidelity.toml").read_text(encoding="utf-8"),
    **{
        f"docs {number}": block
        for number, block in enumerate(
            re.findall(r"```toml\n(.*?)```", (DOCS / "configuration.md").read_text(), re.DOTALL)
        )
    },
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_written_in_the_docs_is_accepted_by_schema_and_reader(tmp_path, name):
    text = GOOD[name].replace("…", "x")
    assert _accepts(schema(), tomllib.loads(text))
    path = tmp_path / "fidelity.toml"
    others = (
        '\n[deployments.stub]\nbase_url = "http://a/v1"\n[deployments.mine]\nlaunch = ["{port}"]\n'
    )
    if "[deployments.mine]" in text:
        others = others.partition("[deployments.mine]")[0]
    declared = [
        f'[[patch]]\nname = "{n}"\nunconditional = true\n' for n in ("mhc_bf16", "splitk_decode")
    ]
    with_patches = "[[patch]]" not in text and "patches = " in text
    more = declared if with_patches else []
    if with_patches:
        more.append('[[patch]]\nname = "index_keys"\non = { flags = ["x"] }\n')
    path.write_text(text + (others if name != "whole" else "") + "".join(more))
    read_config(path)


@pytest.mark.parametrize(
    "text",
    [
        "defalt = 'a'",
        "[deployments.a]\nexpects = ['logprob']",
        "[deployments.a]\nconcurrency = true",
        "[deployments.a]\nbase_url = 'ftp://a'",
        "[deployments.a.roles.router]\nmanual = 'yes'",
        "[[patch]]\nphase = 'later'",
        "[patch]\nname = 'a'",
        "[request]\ntools = [{ name = 'x' }]",
    ],
)
def test_what_the_reader_refuses_the_schema_refuses_too(text):
    assert not _accepts(schema(), tomllib.loads(text))


def test_every_shape_has_a_schema():
    shapes = {key.shape for keys in TABLES for key in keys.keys}
    assert shapes == set(Shape)
