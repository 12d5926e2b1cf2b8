"""Golden: the same token ids through two deployments.

Claim: the deployment scores given texts, and continues prompts, as a golden deployment does, up to
  what rounding in the declared dtype can move: in every class of tokens, length and residue.
Why it breaks in practice: kernels, casts, position scaling and sparse selection go wrong at one
  residue, beyond one length, or for what has to be read from far away; text stays fluent.
A failure means: the two deployments do not compute the same function; the finding names the
  length, the residue of length or position, and the rung: rounding, drift, selection, structural.
Cost: 14 texts of 250 to 1k tokens and 4 to 8k (40k tokens) on each side, 22 more of a class that
  missed, 14 continued prompts (5k tokens), null arms and controls (16k tokens).
Needs: a golden deployment (--fidelity-golden), tokenize, completions with logprobs of given text.
"""

import pytest

from fidelity.checks.given import fitting_rows, given_limit
from fidelity.golden.judging import agree_finding, continued_finding, pair_of
from fidelity.golden.repeating import floor_findings
from fidelity.golden.texts import classes_of, compared, continued, fresh_of_class, repeated, sweep
from fidelity.measure import Measure

pytestmark = pytest.mark.fidelity_requires("golden")

AGREE = 0.80
TEXTS = {
    "quick": {256: 6, 512: 5, 1_024: 4, 2_048: 3, 4_096: 1, 8_128: 1},
    "standard": {256: 20, 512: 20, 1_024: 15, 2_048: 10, 4_096: 5, 8_128: 3},
    "deep": {256: 40, 512: 40, 1_024: 40, 2_048: 30, 4_096: 15, 8_128: 8},
}
CONTINUED = {
    "quick": {256: 8, 512: 6},
    "standard": {256: 20, 512: 20, 2_048: 20},
    "deep": {256: 40, 512: 40, 2_048: 40, 8_128: 10},
}
NULL_TEXTS = {512: 6}
CONTROL_TEXTS = {256: 4}


def test_texts_are_scored_as_by_the_golden(measure: Measure) -> None:
    """Given texts have the golden's logprobs in >= 0.80 of texts, in every class that missed."""
    pair = pair_of(measure)
    limit = measure.deployment.capabilities.max_model_len
    rows = TEXTS[measure.budget]
    scored = given_limit(measure, max(rows), measure.deployment, pair.golden)
    rows = fitting_rows(rows, limit, pair.limit_tokens, scored)
    measure.control(
        "positive",
        "one early token of the measured side's text is exchanged",
        [compared(text, pair, altered=True) for text in sweep(seed="altered", rows=CONTROL_TEXTS)],
        must="be seen at that token",
    )
    texts = sweep(seed=str(measure.seed), rows=rows)
    trials = measure.ask([compared(text, pair) for text in texts])
    null = measure.ask([repeated(text, pair) for text in sweep(seed="null", rows={512: 2})])
    opened = measure.open_classes(
        trials,
        classes_of,
        lambda name, count: [
            compared(text, pair)
            for text in fresh_of_class(name, count, seed=measure.seed, rows=list(rows))
        ],
    )
    findings, profile = agree_finding(measure, trials, opened, null, AGREE, dtype=pair.dtype)
    measure.decide(*findings, profile=profile)


def test_prompts_are_continued_as_by_the_golden(measure: Measure) -> None:
    """Greedy continuations are the golden's in >= 0.80 of prompts, up to rounding ties."""
    measure.needs("top_logprobs")
    pair = pair_of(measure)
    limit = measure.deployment.capabilities.max_model_len
    rows = fitting_rows(CONTINUED[measure.budget], limit, pair.limit_tokens)
    measure.control(
        "positive",
        "the measured side's prompt keeps its question and loses the facts",
        [continued(text, pair, altered=True) for text in sweep(seed="lost", rows=CONTROL_TEXTS)],
        must="differ",
    )
    texts = sweep(seed=f"continued {measure.seed}", rows=rows)
    trials = measure.ask([continued(text, pair) for text in texts])
    opened = measure.open_classes(
        trials,
        classes_of,
        lambda name, count: [
            continued(text, pair)
            for text in fresh_of_class(name, count, seed=measure.seed, rows=list(rows))
        ],
    )
    finding, profile = continued_finding(measure, trials, opened, AGREE)
    measure.decide(finding, profile=profile)


def test_both_deployments_repeat_themselves(measure: Measure) -> None:
    """A deployment that scores one text twice gives one result: the floor of the comparison."""
    pair = pair_of(measure)
    measure.control(
        "positive",
        "one early token of the measured side's text is exchanged",
        [compared(text, pair, altered=True) for text in sweep(seed="floor", rows=CONTROL_TEXTS)],
        must="be seen at that token",
    )
    texts = sweep(seed=f"null {measure.seed}", rows=NULL_TEXTS)
    trials = measure.ask([repeated(text, pair) for text in texts])
    measure.decide(*floor_findings(measure, trials))
