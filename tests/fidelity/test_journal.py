"""The journal: whole lines whatever happens, one writer, nothing hostile breaks it."""

import json
import os
from pathlib import Path

import pytest

from fidelity.errors import JournalError
from fidelity.records import Exchange, Finding, Manifest, Trial, Verdict, read_journal
from fidelity.runs.journal import Journal, new_run_folder, point_latest
from fidelity.words import Outcome, RunVerdict


def manifest(**fields):
    return Manifest(run_id="r", deployment="d", base_url="", model="m", **fields)


def trial(name="t1", **fields):
    return Trial(id=name, claim="s/c", suite="s", probe="needle", **fields)


def finding(outcome=Outcome.PASS):
    return Finding(claim="s/c", suite="s", title="t", outcome=outcome, reason="r")


@pytest.fixture
def journal(tmp_path):
    opened = Journal.create(tmp_path)
    yield opened
    opened.close()


def test_each_record_is_a_line_on_the_file_as_soon_as_it_is_appended(journal):
    journal.append(manifest())
    journal.append(trial())
    lines = journal.path.read_bytes().split(b"\n")
    assert [json.loads(line)["kind"] for line in lines[:-1]] == ["manifest", "trial"]
    assert lines[-1] == b""
    assert json.loads(lines[0])["at"].endswith("+00:00")


def test_findings_manifests_and_verdicts_are_synced_and_trials_are_not(journal, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal.append(trial())
    assert synced == []
    journal.append(finding())
    journal.append(manifest())
    journal.append(Verdict(verdict=RunVerdict.FAITHFUL, sentence="s", exit_code=0))
    assert len(synced) == 3


def test_a_torn_last_line_is_cut_off_before_the_next_record(journal, tmp_path):
    journal.append(manifest())
    journal.append(trial("whole"))
    journal.close()
    with journal.path.open("ab") as stream:
        stream.write(b'{"kind":"trial","id":"torn","cla')
    resumed = Journal.resume(tmp_path)
    resumed.append(trial("next"))
    resumed.close()
    assert [r.id for r in read_journal(journal.path) if isinstance(r, Trial)] == ["whole", "next"]


def test_a_damaged_line_in_the_middle_is_named(journal, tmp_path):
    journal.append(manifest())
    journal.close()
    with journal.path.open("ab") as stream:
        stream.write(b"not json\n")
    with pytest.raises(JournalError, match=r"run\.jsonl:2 is not a record"):
        Journal.resume(tmp_path)


def test_a_folder_that_holds_a_run_is_not_written_over(journal, tmp_path):
    journal.append(manifest())
    journal.close()
    with pytest.raises(JournalError, match="already holds a run: pass --fidelity-resume"):
        Journal.create(tmp_path)


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(JournalError, match="holds no run to resume"):
        Journal.resume(tmp_path)


def test_a_file_that_begins_with_something_else_is_no_journal(tmp_path):
    first = Journal.create(tmp_path)
    first.append(trial())
    first.close()
    with pytest.raises(JournalError, match="does not begin with a manifest"):
        Journal.resume(tmp_path)


def test_two_writers_are_refused(journal, tmp_path):
    with pytest.raises(JournalError, match="is being written by another run"):
        Journal.resume(tmp_path)


def test_lone_surrogates_and_infinite_axes_can_be_read_back(journal):
    hostile = Exchange(request_id="r", text="a\ud800b", messages=({"content": "\udfff"},))
    journal.append(trial(exchanges=(hostile,), cell={"ratio": float("nan"), "depth": 0.5}))
    journal.append(trial("t2", value=float("inf")))
    first, second = read_journal(journal.path)
    assert first.exchanges[0].text == "a?b"
    assert first.cell == {"ratio": "nan", "depth": 0.5}
    assert second.value is None


def test_newlines_of_an_answer_do_not_make_lines(journal):
    journal.append(trial(exchanges=(Exchange(request_id="r", text="a\nb\u2028c\r\n"),)))
    assert journal.path.read_bytes().count(b"\n") == 1


def test_a_full_disk_is_a_journal_error(journal, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(JournalError, match="No space left on device"):
        journal.append(trial())


def test_a_new_folder_is_the_latest_and_a_folder_of_that_name_is_left_alone(tmp_path):
    first, second = new_run_folder(tmp_path), new_run_folder(tmp_path)
    assert first != second
    assert (tmp_path / "latest").resolve() == second
    assert (tmp_path / "latest").readlink() == Path(
        second.name
    )  # relative: the folder can be moved
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    point_latest(first)
    assert not (tmp_path / "latest").is_symlink()


def test_a_folder_that_cannot_be_made_is_a_journal_error(tmp_path):
    Path(tmp_path / "runs").write_text("a file")
    with pytest.raises(JournalError, match="cannot create the run folder"):
        new_run_folder(tmp_path / "runs")
