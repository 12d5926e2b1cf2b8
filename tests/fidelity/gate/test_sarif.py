"""gate.sarif is what the schema of SARIF 2.1.0 demands, and points at the change."""

import json
from urllib.parse import urlsplit

import pytest

from fidelity.gate.items import RULES, Item
from fidelity.gate.sarif import sarif
from fidelity.words import Outcome
from tests.fidelity.gate.ended import place
from tests.fidelity.synthetic_fork import KERNEL, MICROTEST, edit, write

# Of sarif-schema-2.1.0.json: the objects that are written here, what each requires (and a region a
# line, for code hosts), what of its properties is written, and its kind; nothing else may stand
# in it.
OBJECTS = {
    "log": (["version", "runs"], {"$schema": "uri", "version": ["2.1.0"], "runs": ["run*"]}),
    "run": (["tool"], {
        "tool": "tool", "results": ["result*"], "originalUriBaseIds": "bases",
        "columnKind": ["utf16CodeUnits", "unicodeCodePoints"],
    }),
    "tool": (["driver"], {"driver": "component"}),
    "component": (["name"], {"name": str, "rules": ["descriptor*"]}),
    "descriptor": (["id"], {"id": str, "shortDescription": "text"}),
    "text": (["text"], {"text": str}),
    "bases": ([], {"SRCROOT": "artifact"}),
    "artifact": ([], {"uri": "uri-reference", "uriBaseId": str, "description": "text"}),
    "result": (["message"], {
        "message": "text", "ruleId": str, "ruleIndex": int, "locations": ["location*"],
        "level": ["none", "note", "warning", "error"],
    }),
    "location": ([], {"physicalLocation": "place"}),
    "place": (["artifactLocation"], {"artifactLocation": "artifact", "region": "region"}),
    "region": (["startLine"], {"startLine": int}),
}  # fmt: skip
MINIMA = {"startLine": 1, "ruleIndex": -1}


def faults(value, kind="log", where="$"):
    """What the schema does not allow, each with its place."""
    required, properties = OBJECTS[kind]
    if not isinstance(value, dict):
        return [f"{where} is no object"]
    found = [f"{where} lacks {name}" for name in required if name not in value]
    for name, part in value.items():
        at = f"{where}.{name}"
        found += _faults(part, properties[name], at) if name in properties else [f"{at} is unknown"]
        if name in MINIMA and isinstance(part, int) and part < MINIMA[name]:
            found.append(f"{at} is below {MINIMA[name]}")
    return found


def _faults(part, kind, at):
    if isinstance(kind, type):
        return [] if type(part) is kind else [f"{at} is no {kind.__name__}"]
    if kind in ("uri", "uri-reference"):
        good = isinstance(part, str) and part.isascii() and not set(part) & set(' <>"{}|\\^`')
        absolute = kind == "uri-reference" or bool(good and urlsplit(part).scheme)
        return [] if good and absolute else [f"{at} is no {kind}"]
    if isinstance(kind, str):
        return faults(part, kind, at)
    if not kind[0].endswith("*"):
        return [] if part in kind else [f"{at} is none of {kind}"]
    if not isinstance(part, list):
        return [f"{at} is no array"]
    return [f for i, one in enumerate(part) for f in faults(one, kind[0][:-1], f"{at}[{i}]")]


def items():
    return [
        Item(rule=rule, subject=rule, outcome=outcome, message="one sentence\nand more", path=path,
             line=line)
        for rule in RULES
        for outcome in Outcome
        for path, line in (("", 0), ("stack/a b é\udcff.py", 12), (KERNEL, 1))
    ]  # fmt: skip


def test_the_log_is_what_the_schema_demands():
    log = json.loads(json.dumps(sarif(items(), prefix="sub folder/")))
    assert faults(log) == []
    assert log["$schema"].endswith("sarif-2.1.0.json")
    assert faults(json.loads(json.dumps(sarif([])))) == []


def test_a_rule_index_names_the_rule_of_the_same_id():
    (run,) = sarif(items())["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["results"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in run["results"])
    assert len({rule["id"] for rule in rules}) == len(rules)


@pytest.mark.parametrize(
    ("bend", "fault"),
    [
        (lambda log: log.pop("version"), "$ lacks version"),
        (lambda log: log.update(version="2.0.0"), "$.version is none of ['2.1.0']"),
        (lambda log: log["runs"][0].pop("tool"), "$.runs[0] lacks tool"),
        (lambda log: log["runs"][0]["tool"]["driver"].pop("name"), "driver lacks name"),
        (lambda log: log["runs"][0]["results"][0].pop("message"), "results[0] lacks message"),
        (lambda log: log["runs"][0]["results"][0].update(file="x"), "results[0].file is unknown"),
        (lambda log: log["runs"][0]["results"][0].update(level="fail"), "level is none of"),
        (lambda log: region(log).update(startLine=0), "startLine is below 1"),
        (lambda log: region(log).update(startLine="7"), "startLine is no int"),
        (lambda log: artifact(log).update(uri="a b.py"), "uri is no uri-reference"),
    ],
)
def test_the_check_sees_what_is_wrong(bend, fault):
    log = json.loads(json.dumps(sarif(items())))
    bend(log)
    assert any(fault in found for found in faults(log)), faults(log)


def physical(log):
    return log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]


def region(log):
    return physical(log)["region"]


def artifact(log):
    return physical(log)["artifactLocation"]


def test_a_broken_patch_is_shown_at_its_own_first_changed_line(light, gate):
    edit(light, KERNEL, "    return x * weight", "    x = x + 1\n    return x * weight")
    edit(light, MICROTEST, "\n\ndef test_its", "\n\n# why\ndef test_its")  # touched, not to blame
    ended = gate("--microtests-only")
    assert ended.code == 1
    assert faults(json.loads((ended.folder / "gate.sarif").read_text())) == []
    (result,) = [r for r in ended.results if r["ruleId"] == "microtest"]
    assert place(result) == (KERNEL, 2)
    assert result["level"] == "error"
    assert "fast_norm" in result["message"]["text"]


def test_a_file_without_an_entry_is_shown_itself(light, gate):
    write(light, "stack/new one.py", "def f():\n    return 1\n")
    ended = gate("--microtests-only")
    assert faults(json.loads((ended.folder / "gate.sarif").read_text())) == []
    (result,) = ended.results
    assert (result["ruleId"], place(result)) == ("patch-without-entry", ("stack/new one.py", 1))
