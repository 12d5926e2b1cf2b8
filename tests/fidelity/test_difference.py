"""Two runs side by side: first what was asked of whom, then what came of it."""

from fidelity.records import (
    CapabilityState,
    Exchange,
    Finding,
    Manifest,
    PatchState,
    Setting,
    Trial,
    Verdict,
    encode,
)
from fidelity.runs.difference import MOST_CIRCUMSTANCES, difference_lines
from fidelity.words import Blame, Ladder, Outcome, RunVerdict


def manifest(**fields):
    made = {"run_id": "r", "deployment": "d", "base_url": "u", "model": "m"} | fields
    return Manifest(**made)


def finding(outcome, **fields):
    return Finding(claim="s/c", suite="s", title="t", outcome=outcome, reason="r", **fields)


def trial(key, ok, **fields):
    exchange = Exchange(request_id="r", text="17")
    return Trial(
        id=f"t{key}",
        claim="s/c",
        suite="s",
        probe="p",
        key=key,
        ok=ok,
        exchanges=(exchange,),
        **fields,
    )


def verdict(sentence="faithful on 1 of 1 claims"):
    return Verdict(verdict=RunVerdict.FAITHFUL, sentence=sentence, exit_code=0)


def compared(tmp_path, before, after):
    for name, records in (("before", before), ("after", after)):
        (tmp_path / name).mkdir(exist_ok=True)
        lines = b"".join(encode(record) + b"\n" for record in records)
        (tmp_path / name / "run.jsonl").write_bytes(lines)
    return difference_lines(tmp_path / "before", tmp_path / "after")


def test_equal_runs_say_so(tmp_path):
    records = [manifest(), finding(Outcome.PASS), verdict()]
    lines, worse = compared(tmp_path, records, records)
    assert not worse
    assert lines[-1] == "no claim and no probe differs"
    assert lines[1] == "  faithful on 1 of 1 claims"


def test_settings_versions_patches_and_restarts_are_named_before_results(tmp_path):
    before = [
        manifest(
            settings=(
                Setting(name="budget", value="quick", origin="default"),
                Setting(name="run_dir", value="a", origin="flag"),
            ),
            versions={"fidelity": "1"},
            server_info={"page_size": 64, "port": 1, "start_time": 1.0},
            capabilities=(CapabilityState(name="logprobs", present=True),),
        ),
        PatchState(name="fp8_kv", state="off", calls=0),
        finding(Outcome.PASS),
    ]
    after = [
        manifest(
            settings=(
                Setting(name="budget", value="deep", origin="flag"),
                Setting(name="run_dir", value="b", origin="flag"),
            ),
            versions={"fidelity": "2"},
            server_info={"page_size": 128, "port": 2, "start_time": 2.0},
            capabilities=(CapabilityState(name="logprobs", present=False),),
        ),
        manifest(epoch=1),
        PatchState(name="fp8_kv", state="on", calls=7),
        finding(Outcome.PASS),
        verdict(),
    ]
    lines, _ = compared(tmp_path, before, after)
    assert "setting budget: 'quick' -> 'deep'" in lines
    assert "capability logprobs: 'present' -> 'absent'" in lines
    assert "version of fidelity: '1' -> '2'" in lines
    assert "server page_size: '64' -> '128'" in lines
    assert "patch fp8_kv: 'off, never ran' -> 'on, ran'" in lines
    assert any("2 epochs" in line for line in lines)
    assert "  cut off, no verdict" in lines
    assert not any("run_dir" in line or "port" in line or "start_time" in line for line in lines)


def test_many_differences_are_bounded(tmp_path):
    info = {f"key{i}": i for i in range(90)}
    lines, _ = compared(tmp_path, [manifest(server_info=info)], [manifest()])
    assert f"... {90 - MOST_CIRCUMSTANCES} more differ" in lines


def test_another_rung_or_blame_is_a_difference_too(tmp_path):
    was = finding(Outcome.FAIL, blame=Blame.UNKNOWN)
    now = finding(Outcome.FAIL, blame=Blame.DEPLOYMENT, ladder=Ladder.STRUCTURAL)
    lines, worse = compared(tmp_path, [manifest(), was], [manifest(), now])
    assert "s/c: fail blame unknown -> fail structural blame deployment" in lines
    assert not worse


def test_lost_probes_are_named_and_what_was_not_measured_counts_neither_way(tmp_path):
    before = [manifest(), *(trial(str(i), ok=True) for i in range(6)), finding(Outcome.PASS)]
    after = [
        manifest(),
        *(trial(str(i), ok=False) for i in range(4)),
        trial("4", ok=None),
        trial("5", ok=True),
        finding(Outcome.PASS),
    ]
    lines, _ = compared(tmp_path, before, after)
    assert "  same probes: 4 lost and 0 gained of 5 (exact McNemar p 0.125)" in lines
    assert sum(line.startswith("    lost: trial ") for line in lines) == 3


def test_a_claim_of_one_run_only_is_told(tmp_path):
    lines, worse = compared(tmp_path, [manifest()], [manifest(), finding(Outcome.FAIL)])
    assert "s/c: only after" in lines
    assert worse
