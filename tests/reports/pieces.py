"""Records of made-up runs, as a harness would write them: one function for each kind of record."""

from collections.abc import Iterable

from fidelity.records import (
    CapabilityState,
    Control,
    Exchange,
    Finding,
    Manifest,
    PatchState,
    Setting,
    Trial,
    Verdict,
)
from fidelity.statistics.stats import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    sentence_of_power,
)
from fidelity.statistics.stats import rate_of as _rate_of
from fidelity.words import Budget, ControlKind, Ladder, Outcome, RunVerdict, Score

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
KINDS = ("number", "name", "phrase")
NEEDLE = "needle_sweep/recall_at_length[{}]"
POOLED = "needle_sweep/recall_pooled"
ABORT = "abort_then_followup/follow_up_after_close_equals_no_abort"
RENDER = "multi_turn_recall/facts_of_earlier_turns"
PLAN = (
    *(NEEDLE.format(length) for length in LENGTHS),
    POOLED,
    RENDER,
    "continuation/page_then_to_a_file",
    ABORT,
    "abort_then_followup/gauges_return",
    "no_cross_conversation_leak/canary",
    "long_generation/does_not_loop",
    "plumbing/usage_adds_up",
)
FILLER = "Line 12: the harbour was quiet and the boats lay still. "


def manifest(**changes: object) -> Manifest:
    fields: dict[str, object] = {
        "at": "2026-11-29T21:04:11.250+00:00",
        "run_id": "20261129T210411Z-a1b2c3",
        "deployment": "embedded",
        "base_url": "http://127.0.0.1:8123/v1",
        "model": "nano",
        "launched": True,
        "launch_command": ("python", "-m", "engine", "serve", "--model", "engine/checkpoints/nano"),
        "command": ("fidelity", "run", "--deployment", "embedded", "--budget", "quick"),
        "budget": Budget.QUICK,
        "seed": 7,
        "versions": {"fidelity": "0.1.0", "python": "3.11.9", "pytest": "8.3.4"},
        "git_commit": "4632c59d8f1b2a7c9e0d4f6a8b1c3d5e7f901234",
        "server_info": {"max_model_len": 32768, "page_size": 64, "version": "engine 0.1.0"},
        "capabilities": (
            CapabilityState(name="chat", present=True, expected=True),
            CapabilityState(name="cached_tokens", present=True, expected=True),
            CapabilityState(
                name="reasoning",
                present=False,
                detail="no reasoning field in any answer",
                unlock="--reasoning-parser deepseek-v4",
            ),
        ),
        "settings": (
            Setting(name="target", value="embedded", origin="default"),
            Setting(name="budget", value="quick", origin="flag --budget"),
            Setting(name="seed", value="7", origin="environment FIDELITY_SEED"),
            Setting(name="max_tokens_total", value="2000000", origin="default"),
            Setting(name="concurrency", value="16", origin="file fidelity.toml:12"),
        ),
        "expects": ("chat", "cached_tokens"),
        "planned_claims": PLAN,
    }
    return Manifest(**(fields | changes))


def exchange(prompt: str, text: str, **changes: object) -> Exchange:
    fields: dict[str, object] = {
        "request_id": "fid-3f2a",
        "path": "/chat/completions",
        "status": 200,
        "label": "ask",
        "messages": ({"role": "user", "content": prompt},),
        "prompt_tokens": 256,
        "cached_tokens": 0,
        "completion_tokens": 4,
        "finish_reason": "stop",
        "text": text,
        "ttft_s": 0.031,
        "e2e_s": 0.214,
    }
    return Exchange(**(fields | changes))


def needle(number: int, length: int, *, ok: bool = True, **changes: object) -> Trial:
    """Return one needle trial at an exact length; its depth and kind follow from its number."""
    secret = str(10_000 + 37 * number)
    depth, kind = DEPTHS[number % 5], KINDS[number % 3]
    prompt = f"{FILLER * 8}The vault code for Marchmont is {secret}. {FILLER * 8}What is the code?"
    fields: dict[str, object] = {
        "id": f"needle-{length}-{number}",
        "claim": NEEDLE.format(max((size for size in LENGTHS if size <= length), default=256)),
        "suite": "needle_sweep",
        "probe": "needle",
        "key": f"{length}/{number}",
        "seed": number,
        "cell": {"length_tokens": length, "depth_frac": depth, "needle_kind": kind},
        "recipe": {"builder": "needle", "length": length},
        "expected": secret,
        "score": Score.RIGHT if ok else Score.WRONG,
        "ok": ok,
        "paths": ("cold",),
        "exchanges": (
            exchange(prompt, secret if ok else "I do not know that.", prompt_tokens=length),
        ),
        "lost": "" if ok else "attention",
    }
    return Trial(**(fields | changes))


def needles(per_length: int = 44, *, wrong: Iterable[int] = (), mod: int = 4) -> list[Trial]:
    """Return a sweep over all lengths whose exact lengths cover every residue modulo 4.

    Needles whose length has a residue in `wrong` miss.
    """
    bad = set(wrong)
    return [
        needle(number, length + number, ok=(length + number) % mod not in bad)
        for length in LENGTHS
        for number in range(per_length)
    ]


def rate_finding(claim: str, title: str, trials: list[Trial], **changes: object) -> Finding:
    """Return the finding that trials give for a claim ">= threshold", as the harness words it."""
    threshold = float(str(changes.pop("threshold", 0.8)))
    rate = _rate_of((trial.cluster, bool(trial.ok)) for trial in trials)
    low = clopper_pearson_lower(rate.k_low, rate.n)
    high = clopper_pearson_upper(rate.k_high, rate.n)
    passed, failed = low >= threshold, high < threshold
    outcome = Outcome.PASS if passed else Outcome.FAIL if failed else Outcome.INCONCLUSIVE
    fields: dict[str, object] = {
        "claim": claim,
        "suite": claim.split("/", maxsplit=1)[0],
        "title": title,
        "outcome": outcome,
        "reason": f"{rate.k_low}/{rate.n} right (bounds {low:.3f} to {high:.3f}), claim >= "
        f"{threshold:.2f}: {outcome.value}",
        "effect_name": "recall",
        "effect": rate.share,
        "interval": (low, high),
        "threshold": threshold,
        "k": rate.k_low,
        "n": rate.n,
        "minimum_detectable_effect": sentence_of_power(rate, threshold),
        "paths": ("cold",),
        "trials": tuple(trial.id for trial in trials),
    }
    return Finding(**(fields | changes))


def simple_pass(claim: str, title: str) -> Finding:
    return Finding(
        claim=claim,
        suite=claim.split("/", maxsplit=1)[0],
        title=title,
        outcome=Outcome.PASS,
        reason="as claimed",
        ladder=Ladder.EXACT,
        minimum_detectable_effect="one leaked canary in 40 conversations",
    )


def dialogue(
    number: int, claim: str, *, arm: str = "", ok: bool = True, **changes: object
) -> Trial:
    """Return a conversation of two turns; the second asks for what the first told."""
    name = f"Tchaikovsky{number}"
    first = {"role": "user", "content": f"My cat is called {name}. Remember that."}
    told = {"role": "assistant", "content": f"{name} is a lovely name."}
    ask = {"role": "user", "content": "What is my cat called?"}
    fields: dict[str, object] = {
        "id": f"{claim}#{arm or 'plain'}-{number}",
        "claim": claim,
        "suite": claim.split("/", maxsplit=1)[0],
        "probe": "dialogue",
        "arm": arm,
        "key": f"cat-{number}",
        "seed": number,
        "cell": {"turns": 2, "abort_after": 17},
        "expected": name,
        "score": Score.RIGHT if ok else Score.AMNESIC,
        "ok": ok,
        "paths": ("cached", "aborted") if arm == "after abort" else ("cached",),
        "exchanges": (
            exchange(
                "",
                told["content"],
                label="tell, closed after 17 tokens",
                messages=(first,),
                prompt_tokens=140,
                completion_tokens=17,
                aborted=arm == "after abort",
                finish_reason="",
            ),
            exchange(
                "",
                name if ok else "This is the first message of our conversation.",
                messages=(first, told, ask),
                prompt_tokens=190 if ok else 61,
                cached_tokens=128 if ok else 0,
                completion_tokens=9,
            ),
        ),
        "lost": "" if ok else "rendering",
    }
    return Trial(**(fields | changes))


def controls() -> list[Control]:
    return [
        Control(
            claim=NEEDLE.format(1024),
            suite="needle_sweep",
            control=ControlKind.POSITIVE,
            what="the fact is cut out of the context",
            expected="0 of 8 right",
            observed="0 of 8 right",
            ok=True,
            trials=tuple(f"control-{number}" for number in range(8)),
        ),
        Control(
            claim=ABORT,
            suite="abort_then_followup",
            control=ControlKind.NULL,
            what="the same two requests, no abort",
            expected="the same answer",
            observed="the same answer, 6 of 6",
            ok=True,
        ),
    ]


def patches() -> list[PatchState]:
    return [
        PatchState(name="index_keys", state="on", calls=48_210, detail="int4,row"),
        PatchState(name="mhc_bf16", state="on", calls=0),
        PatchState(name="index_topk", state="off", calls=0),
    ]


def verdict(kind: RunVerdict, sentence: str, **changes: object) -> Verdict:
    fields: dict[str, object] = {
        "verdict": kind,
        "sentence": sentence,
        "exit_code": {"faithful": 0, "unfaithful": 1}.get(kind.value, 2),
        "holm": ("Holm over 14 planned claims at 0.05: no fail decision to correct",),
        "duration_s": 161.4,
        "requests": 412,
        "prompt_tokens": 1_284_211,
        "completion_tokens": 21_870,
    }
    return Verdict(**(fields | changes))


def sweep_findings(trials: list[Trial]) -> list[Finding]:
    found = []
    for length in LENGTHS:
        claim = NEEDLE.format(length)
        members = [trial for trial in trials if trial.claim == claim]
        found.append(rate_finding(claim, f"recall >= 0.80 at {length} tokens", members))
    found.append(rate_finding(POOLED, "recall >= 0.95 pooled over lengths", trials, threshold=0.95))
    return found


def others(*, without: Iterable[str] = ()) -> list[Finding]:
    titles = {
        RENDER: "facts of earlier turns are recalled",
        "continuation/page_then_to_a_file": "a page is continued, then put into a file",
        ABORT: "after an abort by closing the follow-up equals one without an abort",
        "abort_then_followup/gauges_return": "running, queued and used-page gauges return",
        "no_cross_conversation_leak/canary": "no canary of conversation A shows in B",
        "long_generation/does_not_loop": "2,000 generated tokens do not loop",
        "plumbing/usage_adds_up": "prompt and completion tokens add up to the total",
    }
    left_out = set(without)
    return [simple_pass(claim, title) for claim, title in titles.items() if claim not in left_out]
