"""What becomes of compared texts: where they part, which rung, and whose noise it is."""

from types import SimpleNamespace

import msgspec
import pytest

from fidelity.golden.bias import bias_finding
from fidelity.golden.judging import _difference, _where, continued_finding, profile_of
from fidelity.golden.repeating import floor_findings
from fidelity.records import Trial
from fidelity.statistics.ladder import rung
from fidelity.verdicts.decisions import Claim
from fidelity.verdicts.parts import merge
from fidelity.words import Blame, Ladder, Outcome

CLAIM = SimpleNamespace(claim="golden/x", suite="golden")


def trial(key, *, ok=True, tokens=250, residues=None, classes=(), size=0.0, flips=0):
    details = {
        "kl": 0.0,
        "kl_top": 0.0,
        "mean_abs": size,
        "mean_abs_uncertain": size,
        "p99": size,
        "maximum": size,
        "maximum_at": 0,
        "top1_agreement": 1.0,
        "flips": flips,
        "open": 100,
        "moved": 0,
        "answer_loss": 0.0,
        "classes": list(classes),
        "tie": None,
        "first_divergence": None,
        "first_divergence_gap": None,
        "eighths": [[10.0, 0.0, 0.0]] * 8,
        "positions": [[10.0, 0.0, 0.0]] * 7 + [[10.0, 9.0, 9.0]],
        "residues": residues or [[4.0, 0.0, 0.0]] * 128,
    }
    return Trial(
        id=f"t{key}",
        claim="golden/x",
        suite="golden",
        probe="golden text",
        key=str(key),
        ok=ok,
        value=size,
        cell={"length_tokens": 256, "prompt_tokens": tokens, "depth_frac": 0.5},
        details=details,
    )


def rung_of(trials, null=()):
    profile = profile_of(trials, dtype="bfloat16")
    return rung(_difference(trials, null, profile, bound=0.25))


class TestPlaces:
    def test_a_residue_of_the_position_is_named_by_its_coarsest_modulus(self):
        rows = [[4.0, 9.0, 4.0] if r % 16 == 5 else [4.0, 0.1, 0.0] for r in range(128)]
        profile = profile_of([trial(1, ok=False, residues=rows)], dtype="bfloat16")
        assert profile["places"] == ["position = 5 mod 16 (32 of 32 moved, 0.0% elsewhere)"]

    def test_what_moves_everywhere_has_no_place(self):
        rows = [[4.0, 9.0, 3.0]] * 128
        assert profile_of([trial(1, ok=False, residues=rows)], dtype="bfloat16")["places"] == []

    def test_the_residue_that_all_damaged_lengths_share_is_told(self):
        missed = [
            trial(n, ok=False, tokens=n, classes=["all tokens (9 of 10)"]) for n in (203, 211, 239)
        ]
        words = _where(profile_of(missed, dtype="bfloat16"), missed)
        assert "all 3 such texts have 3 mod 4 tokens" in words
        assert "too many tokens moved in: all tokens in 3 of 3 texts" in words
        assert "tokens move from position 128 on" in words


class TestRung:
    NULL = (trial("n", size=0.0),)

    def test_equal_arms_are_exact(self):
        assert rung_of([trial(1)], self.NULL) is Ladder.EXACT

    def test_a_fifth_of_the_bound_is_rounding_and_more_is_drift(self):
        assert rung_of([trial(1, size=0.04)], self.NULL) is Ladder.ROUNDING
        assert rung_of([trial(1, size=0.08)], self.NULL) is Ladder.DRIFT

    def test_another_best_token_is_a_selection_and_a_lost_answer_structural(self):
        assert rung_of([trial(1, ok=False, size=0.3, flips=4)], self.NULL) is Ladder.SELECTION
        lost = trial(1, ok=False, size=0.3, flips=4, classes=["the answer (5 of 5)"])
        assert rung_of([lost], self.NULL) is Ladder.STRUCTURAL

    def test_without_a_null_arm_a_size_proves_no_rung(self):
        assert rung_of([trial(1, size=0.04)]) is None


class TestBias:
    def found(self, *means, dtype="bfloat16"):
        texts = [trial(i) for i in range(len(means))]
        for one, mean in zip(texts, means, strict=True):
            one.details["bias"] = mean
        return bias_finding(CLAIM, texts, dtype=dtype)

    def test_a_shift_of_all_texts_fails_though_no_token_moved_beyond_rounding(self):
        for sign in (1, -1):
            found = self.found(*(sign * v for v in (0.2, 0.19, 0.21, 0.2, 0.18, 0.22)))
            assert (found.outcome, found.blame) == (Outcome.FAIL, Blame.DEPLOYMENT)
            assert found.ladder is Ladder.DRIFT
            assert f"{sign * 0.2:+.2g} nats" in found.reason

    def test_rounding_that_goes_up_and_down_passes(self):
        found = self.found(0.02, -0.01, 0.015, -0.02, 0.0, 0.01)
        assert (found.outcome, found.ladder) == (Outcome.PASS, None)
        assert self.found(None, None).outcome is Outcome.PASS

    def test_the_declared_dtype_says_how_much(self):
        assert self.found(*[1e-5] * 6, dtype="float32").outcome is Outcome.PASS
        assert self.found(*[1e-2] * 6, dtype="float32").outcome is Outcome.FAIL

    def test_one_wild_text_convicts_nobody_and_clears_nobody(self):
        assert self.found(0.0, 0.01, 0.0, 2.0).outcome is Outcome.INCONCLUSIVE


def test_what_was_continued_is_told_by_length():
    claim = SimpleNamespace(
        rate_finding=lambda trials, threshold, **options: SimpleNamespace(
            outcome=Outcome.PASS, ladder=None, reason=""
        )
    )
    _, profile = continued_finding(claim, [trial(1), trial(2), trial(3, ok=False)], (), 0.8)
    assert profile == {
        "path": "decode",
        "lengths": [{"length_tokens": 256, "texts": 3, "agree": 2}],
    }
    assert profile_of([trial(1)], dtype="bfloat16")["path"] == "prefill"


def test_a_claim_of_both_keeps_the_rung_of_what_holds():
    bias = TestBias().found(0.01, -0.01, 0.01)
    agree = msgspec.structs.replace(bias, title="texts agree", ladder=Ladder.ROUNDING)
    claim = Claim(id="golden/x", suite="golden", title="t")
    assert merge(claim, [agree, bias]).ladder is Ladder.ROUNDING
    unsure = msgspec.structs.replace(bias, outcome=Outcome.INCONCLUSIVE)
    assert merge(claim, [agree, unsure]).ladder is None


class TestFloor:
    def trials(self, measured, golden, error=""):
        def arm(nats):
            return {"mean_abs_uncertain": nats, "flips": 0}

        return [
            Trial(
                id=f"t{i}",
                claim="golden/x",
                suite="golden",
                probe="golden text",
                key=str(i),
                ok=None if error else True,
                error=error,
                details={"measured": arm(measured + i * 1e-3), "golden": arm(golden + i * 1e-3)},
            )
            for i in range(6)
        ]

    def test_two_deployments_that_repeat_themselves_pass(self):
        found = floor_findings(CLAIM, self.trials(0.0, 0.0))
        assert [f.outcome for f in found] == [Outcome.PASS, Outcome.PASS]

    def test_noise_of_the_measured_one_is_its_fault(self):
        measured, golden = floor_findings(CLAIM, self.trials(0.2, 0.0))
        assert (measured.outcome, measured.blame) == (Outcome.FAIL, Blame.DEPLOYMENT)
        assert golden.outcome is Outcome.PASS

    def test_noise_of_the_golden_is_nobodys_fault_here(self):
        _, golden = floor_findings(CLAIM, self.trials(0.0, 0.2))
        assert (golden.outcome, golden.blame) == (Outcome.INCONCLUSIVE, None)

    def test_trouble_is_an_error(self):
        found = floor_findings(CLAIM, self.trials(0.0, 0.0, error="the golden deployment: down"))
        assert {f.outcome for f in found} == {Outcome.ERROR}
        assert "down" in found[0].reason


@pytest.mark.parametrize("modulus", ["4", "16"])
def test_texts_are_counted_by_the_residue_of_their_length(modulus):
    texts = [trial(1, tokens=251, ok=False), trial(2, tokens=252)]
    counts = profile_of(texts, dtype="bfloat16")["texts"][modulus]
    assert counts[251 % int(modulus)] == [1, 1]
    assert counts[252 % int(modulus)] == [1, 0]
