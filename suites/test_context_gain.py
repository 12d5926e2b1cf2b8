"""Context gain: what the right answer gains by the fact in its context, in nats.

Claim: log p(right answer | context) is larger than log p(right answer | the same context with the
  fact altered), at every length, depth and residue.
Why it breaks in practice: state is lost between prompt and answer at one residue, one depth or
  beyond one length; greedy answers of a weak model are wrong anyway, and hide it.
A failure means: the fact did not reach the answer. Where altering it does not touch the answer, and
  facts as far away are read, the deployment lost it; otherwise the model may be weak.
Cost: 15 facts of 256 to 2k tokens, 2 requests each, 4 at the short ones (34k tokens), 22 more of
  a class that missed. No token is generated but one a request.
Needs: tokenize, completions with logprobs of given text.
"""

from fidelity.checks.given import fitting_rows, given_limit
from fidelity.gain.judging import bound_of, gain_findings, profile_of
from fidelity.gain.reading import NOTHING, RIVAL, classes_of, fresh_of_class, gain_probe, sweep
from fidelity.measure import Measure

GAINS = 0.80
FACTS = {
    "quick": {256: 5, 768: 5, 2_048: 5},
    "standard": {256: 20, 512: 20, 1_024: 20, 2_048: 20, 4_096: 20, 8_128: 20},
    "deep": {256: 60, 512: 60, 1_024: 60, 2_048: 60, 4_096: 60, 8_128: 60, 16_256: 40},
}
BOTH_WAYS_TOKENS = {"quick": 256, "standard": 2_048, "deep": 16_256}
CONTROL_FACTS = {256: 4}


def test_the_fact_gains_at_every_length_and_depth(measure: Measure) -> None:
    """The fact gains in >= 0.80 of contexts, and more often than not at each length."""
    bound = bound_of(measure)
    limit = measure.deployment.capabilities.max_model_len
    rows = FACTS[measure.budget]
    rows = fitting_rows(rows, limit, given_limit(measure, max(rows), measure.deployment))
    controls = sweep(seed="control", rows=CONTROL_FACTS, both_ways_tokens=0, bound_nats=bound)
    measure.control(
        "positive",
        "the fact is altered in both arms",
        [gain_probe(reading, altered=NOTHING) for reading in controls],
        must="gain nothing",
    )
    rival = measure.ask([gain_probe(reading, altered=RIVAL) for reading in controls], arm="rival")
    facts = sweep(
        seed=str(measure.seed),
        rows=rows,
        both_ways_tokens=BOTH_WAYS_TOKENS[measure.budget],
        bound_nats=bound,
    )
    trials = measure.ask([gain_probe(reading) for reading in facts])
    opened = measure.open_classes(
        trials,
        classes_of,
        lambda name, count: [
            gain_probe(reading)
            for reading in fresh_of_class(
                name, count, seed=measure.seed, rows=list(rows), bound_nats=bound
            )
        ],
    )
    findings = gain_findings(measure, trials, opened, GAINS, list(rows))
    measure.decide(*findings, profile=profile_of(trials, rival, rows=list(rows)))
