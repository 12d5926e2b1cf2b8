"""What a terminal shows at the end: short enough to read, wrapped, each cause told once."""

from pathlib import Path

from fidelity.records import Finding, Part, PatchState
from fidelity.runs.summary import summary_lines
from fidelity.verdicts.verdict import judge, resolve
from fidelity.words import Blame, Concern, Outcome

LONG = "13 of 14 right (0.929; 95 % bounds 0.703 to 0.996) against >= 0.80; " * 3


def finding(name, outcome, **fields):
    fields = {"title": f"title of {name}", "reason": f"reason of {name}", **fields}
    return Finding(claim=f"suite/{name}", suite="suite", outcome=outcome, **fields)


def shown(*findings, **options):
    resolution = resolve({f.claim: f for f in findings}, [], [f.claim for f in findings])
    return summary_lines(
        judge(resolution, [f.claim for f in findings]),
        resolution.findings,
        holm=resolution.holm,
        folder=Path("/nowhere/runs/x"),
        command=("fidelity", "run"),
        **options,
    )


def test_text_is_wrapped_at_100_columns_and_paths_are_not():
    lines = shown(finding("a", Outcome.INCONCLUSIVE, reason=LONG), finding("b", Outcome.PASS))
    told = [line for line in lines if not line.startswith(("journal:", "repeat:"))]
    assert max(len(line) for line in told) <= 100
    assert " ".join(" ".join(told).split()).count("13 of 14 right") == 3
    assert "journal: /nowhere/runs/x/run.jsonl" in lines


def test_a_narrow_terminal_is_respected():
    lines = shown(finding("a", Outcome.INCONCLUSIVE, reason=LONG), width=60)
    assert max(len(line) for line in lines if line.startswith(" ")) <= 60


def test_one_cause_of_many_claims_is_told_once():
    dead = [finding(f"c{i}", Outcome.ERROR, reason="the server is gone") for i in range(48)]
    lines = shown(*dead)
    assert sum("the server is gone" in line for line in lines[1:]) == 1
    assert "               and 43 more for the same reason" in lines
    assert sum("title of" in line for line in lines) == 0


def test_failures_come_first_and_those_about_the_api_after_the_others():
    lines = shown(
        finding("unclear", Outcome.INCONCLUSIVE),
        finding("api", Outcome.FAIL, p_value=0.0, concern=Concern.CONFORMANCE),
        finding("lost", Outcome.FAIL, p_value=0.0, blame=Blame.DEPLOYMENT),
    )
    told = [line.split()[1] for line in lines if line.startswith(("FAIL ", "INCONCLUSIVE "))]
    assert told == ["suite/lost", "suite/api", "suite/unclear"]


def test_open_parts_are_listed_worst_first_without_the_one_that_the_reason_tells():
    def part(title, outcome, k):
        return Part(title=title, outcome=outcome, reason=f"{k} of 14 right", k=k, n=14)

    parts = (
        part("at 256", Outcome.PASS, 14),
        part("at 512", Outcome.INCONCLUSIVE, 13),
        part("at 1024", Outcome.FAIL, 2),
        part("at 2048", Outcome.FAIL, 3),
    )
    failed = finding(
        "a",
        Outcome.FAIL,
        p_value=0.0,
        blame=Blame.DEPLOYMENT,
        reason="at 1024: 2 of 14 right; of 3 other parts 1 fails",
        parts=parts,
    )
    assert [line.strip() for line in shown(failed) if line.strip().startswith("- ")] == [
        "- fail: at 2048: 3 of 14",
        "- inconclusive: at 512: 13 of 14",
    ]


def test_inert_patches_are_named():
    patches = [
        PatchState(name="index_keys", state="on", calls=0),
        PatchState(name="index_topk", state="on", calls=9),
        PatchState(name="other", state="off", calls=0),
        PatchState(name="untold", state="on", calls=None),
    ]
    lines = shown(finding("a", Outcome.PASS), patches=patches)
    inert = [line for line in lines if line.startswith("inert")]
    assert inert == ["inert: index_keys is on and was never called: this run says nothing of it"]
    assert not any("inert" in line for line in shown(finding("a", Outcome.PASS)))
