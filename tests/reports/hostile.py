"""A model, and a server, that try to write into the report."""

from fidelity.records import AnyRecord, PatchState
from fidelity.words import Blame, Ladder, Outcome, RunVerdict, Score
from tests.reports.pieces import RENDER, dialogue, exchange, manifest, rate_finding, verdict

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
RTL = "שלום עולם, זה ההודעה الأولى"
OVERRIDE = "code \u202e54321\u202c \x1b[31mred\x07 \u200b"


def hostile() -> list[AnyRecord]:
    """A model, and a server, that try to write into the report."""
    texts = [HOSTILE, RTL, OVERRIDE, "", "`a` | *b* | <b>c</b>\n| --- |\n# head", "x" * 100_000]
    claim = RENDER
    trials = [
        dialogue(
            n,
            claim,
            ok=False,
            score=Score.WRONG if text else Score.EMPTY,
            expected=HOSTILE if n == 0 else f"right{n}",
            exchanges=(
                exchange(f"{text} and {{{{ 7*7 }}}}", text, reasoning=text[:50_000]),
                exchange(
                    "again",
                    text,
                    messages=({"role": HOSTILE, "content": [{"type": "text", "text": text}]},),
                    finish_reason=HOSTILE[:40],
                ),
            ),
        )
        for n, text in enumerate(texts)
    ]
    findings = [
        rate_finding(
            claim,
            f"facts of earlier turns {HOSTILE}",
            trials[:3],
            reason=f"got {HOSTILE} | `x` \n\n## not a heading | cell",
            outcome=Outcome.FAIL,
            blame=Blame.DEPLOYMENT,
            ladder=Ladder.STRUCTURAL,
        ),
        rate_finding(
            "continuation/page_then_to_a_file",
            "a page | is `continued`",
            trials[3:],
            outcome=Outcome.FAIL,
        ),
    ]
    return [
        manifest(
            deployment=HOSTILE,
            model="a|b`c`<i>",
            server_info={HOSTILE: HOSTILE, "max_model_len": "many"},
            command=("fidelity", "run", HOSTILE, "```"),
        ),
        *trials,
        *findings,
        PatchState(name=HOSTILE, state=HOSTILE, detail=RTL),
        verdict(RunVerdict.UNFAITHFUL, f"unfaithful: {HOSTILE}", blame=Blame.DEPLOYMENT),
    ]
