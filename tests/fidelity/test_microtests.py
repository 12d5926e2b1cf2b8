"""Verdicts over checks, and the files that keep them until something changes."""

from pathlib import Path

import msgspec
import pytest

from fidelity.config.settings import resolve_microtests
from fidelity.errors import ConfigError, JournalError
from fidelity.microtests.judge import CALLS, fold, judge
from fidelity.microtests.results import Check, Scope
from fidelity.microtests.verdict_files import code_hash, expiry, load, save
from fidelity.words import Ladder, PatchVerdict, Question

SCOPE = Scope(code="c", dtype="bf16", shapes=("x[4]",), data="synthetic", device="cpu")
GOOD = Check(question=Question.IMPLEMENTATION, name="error", value=1, limit=2, holds=True,
             rung=Ladder.ROUNDING)  # fmt: skip
BAD = msgspec.structs.replace(GOOD, value=9, holds=False, rung=Ladder.DRIFT, sentence="too large")
FORMAT = msgspec.structs.replace(GOOD, question=Question.FORMAT, name="KL")
NEVER = Check(question=Question.PROOF, name=CALLS, value=0, holds=False, sentence="never ran")
ALIAS = Check(question=Question.PROOF, name="differs", value=0, holds=False, sentence="an alias")
NEEDS = (Question.IMPLEMENTATION, Question.FORMAT)


def verdict(*checks, needs=NEEDS):
    report = judge("p", SCOPE, checks, needs=needs)
    return report.verdict, report.ladder, report.reason


def test_all_that_is_needed_and_holds_exonerates():
    found = verdict(GOOD, FORMAT)
    assert found[:2] == (PatchVerdict.EXONERATED, Ladder.ROUNDING)
    assert found[2] == "all 2 checks hold in bf16, synthetic data, cpu"


def test_one_broken_check_convicts_with_the_worst_of_them():
    worse = msgspec.structs.replace(BAD, rung=Ladder.SELECTION, sentence="other entries")
    assert verdict(GOOD, BAD, worse) == (
        PatchVerdict.CONVICTED, Ladder.SELECTION, "other entries",
    )  # fmt: skip


def test_a_patch_that_never_ran_is_inert_whatever_its_numbers():
    assert verdict(GOOD, BAD, FORMAT, NEVER) == (PatchVerdict.INERT, None, "never ran")


def test_an_alias_and_an_open_question_leave_it_undecided():
    assert verdict(GOOD, FORMAT, ALIAS)[0::2] == (PatchVerdict.UNDECIDED, "an alias")
    assert verdict(GOOD)[0::2] == (PatchVerdict.UNDECIDED, "not measured: choice of format")
    reported = msgspec.structs.replace(FORMAT, holds=None)
    assert verdict(GOOD, reported)[0] is PatchVerdict.UNDECIDED


def test_a_broken_check_beats_an_alias():
    assert verdict(BAD, ALIAS)[0] is PatchVerdict.CONVICTED


def test_of_each_figure_the_worst_is_kept():
    (kept,) = fold([GOOD, BAD, msgspec.structs.replace(GOOD, value=1.9)])
    assert (kept.value, kept.cases, kept.sentence) == (9, 3, "too large")
    low = Check(question=Question.FORMAT, name="Jaccard, least", value=0.4)
    assert fold([msgspec.structs.replace(low, value=0.9), low])[0].value == 0.4


def test_a_verdict_is_kept_until_its_scope_changes(tmp_path):
    report = judge("p", SCOPE, [GOOD, FORMAT], needs=NEEDS, at="2026-11-30T00:00:00+00:00")
    save(report, tmp_path / "deep" / "folder")
    kept = load(tmp_path / "deep" / "folder", "p", SCOPE)
    assert kept == (report, "")
    for field, value, words in (
        ("code", "d", "code changed"),
        ("dtype", "fp16", "dtype was bf16, is fp16"),
        ("data", "a dump", "data was synthetic, is a dump"),
        ("device", "H200", "device was cpu, is H200"),
        ("seed", 7, "seed was None, is 7"),
        ("contents", "c", "the contents of the checkpoint or dumps changed"),
        ("shapes", ("x[4]", "x[9]"), r"shapes not measured then: x[9]"),
    ):
        assert expiry(SCOPE, msgspec.structs.replace(SCOPE, **{field: value})) == words
    fewer = msgspec.structs.replace(SCOPE, shapes=())
    assert expiry(SCOPE, fewer) == ""
    assert load(tmp_path, "p", SCOPE).report is None


def test_a_file_that_is_no_verdict_is_an_error(tmp_path):
    (tmp_path / "p.json").write_text('{"name": 3}')
    with pytest.raises(JournalError, match=r"p.json cannot be read as a verdict"):
        load(tmp_path, "p", SCOPE)
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"verdict on p cannot be written"):
        save(judge("p", SCOPE, [GOOD], needs=()), tmp_path / "file" / "inside")


def test_the_hash_follows_contents_and_names(tmp_path):
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text("1")
    b.write_text("2")
    first = code_hash([a, b])
    assert first == code_hash([b, a, a])
    b.write_text("3")
    assert code_hash([a, b]) != first
    with pytest.raises(JournalError, match="cannot be read"):
        code_hash([Path(tmp_path / "none.py")])


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    paths = [tmp_path / folder / "a.py" for folder in "abcdefgh"]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        path.write_text(str(number))
    assert len({code_hash([*paths[n:], *paths[:n]]) for n in range(8)}) == 1
    paths[0].write_text("1")
    swapped = code_hash(paths)
    paths[0].write_text("0")
    assert code_hash(paths) != swapped


def test_each_value_and_source_of_a_patch_has_a_file_of_its_own(tmp_path):
    report = judge("p", SCOPE, [GOOD], needs=())
    values = ("", "int4,row", "int4", "a/../../b", "..", "x" * 300, "x" * 299 + "y", "é \n")
    found = [
        save(msgspec.structs.replace(report, value=value, source=source), tmp_path / "v")
        for value in values
        for source in ("synthetic", "harvested")
    ]
    assert len(set(found)) == 2 * len(values)
    assert {path.resolve().parent for path in found} == {(tmp_path / "v").resolve()}
    assert found[2].name == "p=int4,row.json"
    assert max(len(path.name) for path in found) < 130


def test_microtests_have_settings_of_their_own():
    settings = resolve_microtests({"device": "cuda", "patch": ["a=1", "b"]}, environ={})
    assert (settings.device, settings.patch, settings.seed) == ("cuda", ("a=1", "b"), 0)
    environ = {"FIDELITY_DEVICE": "cpu", "FIDELITY_SEED": "7", "FIDELITY_INPUTS": "dumps"}
    settings = resolve_microtests({}, environ=environ)
    assert (settings.device, settings.seed, settings.inputs) == ("cpu", 7, Path("dumps"))
    with pytest.raises(ConfigError, match=r"flag --device: expected .*cpu.*cuda"):
        resolve_microtests({"device": "tpu"}, environ={})
