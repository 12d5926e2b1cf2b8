"""The shipped checkpoint recalls in another implementation: the model can, not only our engine."""

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.nano_in_transformers import LENGTHS, ask, questions, record
from engine.nano.catalogue import DEPTHS

SHIPPED = Path(__file__).parents[3] / "engine" / "checkpoints" / "nano"


def test_every_planted_needle_is_found():
    items = questions(SHIPPED, LENGTHS[0])
    assert len(items) == len(DEPTHS) == 5
    # Control: another code in its place in the document, so that no code comes from elsewhere.
    code = items[0].ids[items[0].start : items[0].end - 1]
    at = next(n for n in range(items[0].start) if items[0].ids[n : n + len(code)] == code)
    other = items[0].ids[:at] + code[::-1] + items[0].ids[at + len(code) :]
    assert other != items[0].ids
    *answers, control = ask(SHIPPED, [*items, replace(items[0], ids=other)], "fp32")

    assert [answer.right for answer in answers] == [True] * 5
    assert control.given[: len(code)] == code[::-1]
    assert not control.right


def test_counts_are_added_to_what_was_measured_before(tmp_path):
    results = tmp_path / "results.json"
    results.write_text('{"needle": {}}')
    record(tmp_path, {"256": {"fp32": [5, 5]}})
    record(tmp_path, {"256": {"bf16": [4, 5]}, "1024": {"bf16": [5, 5]}})
    assert json.loads(results.read_text()) == {
        "needle": {},
        "transformers": {"256": {"fp32": [5, 5], "bf16": [4, 5]}, "1024": {"bf16": [5, 5]}},
    }
