"""Long generation: texts of hundreds to thousands of tokens, judged for repetition only.

Claim: a long answer does not fall into a loop, and its finish reason and token count are right.
Why it breaks in practice: a wrong state of the decode path, a lost penalty or a retracted request
  that resumes in the wrong place makes a text go in circles, often only late and in a full batch.
A failure means: the text repeats itself; whether the model or the server does it, a second
  deployment or sampling as in production tells. It says nothing about what was read.
Cost: 6 streams at once of 500 tokens (quick), 12 of 1,500 (standard), 20 of 4,000 (deep).
Needs: chat.
"""

from fidelity.checks import generation
from fidelity.measure import Measure

TOKENS = {"quick": 500, "standard": 1_500, "deep": 4_000}


def test_long_text_does_not_repeat_itself(measure: Measure) -> None:
    """No loop at the end or inside, no word or line over and over; counts and ends add up."""
    tokens = TOKENS[measure.budget]
    count = measure.trials_planned(quick=6, standard=12, deep=20)
    kept: list[str] = []
    trials = measure.ask(
        [generation.long_text_probe(p, tokens, kept) for p in generation.prompts(count, tokens)]
    )
    for what, probes in generation.damaged_probes(kept).items():
        measure.control("positive", what, probes)
    measure.control("null", "texts that count and list", generation.healthy_probes())
    measure.decide(
        generation.repetition_finding(measure, trials, title="long texts do not repeat themselves"),
        generation.counts_finding(measure, trials, title="their ends and counts are consistent"),
    )
