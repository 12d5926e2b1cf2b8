"""Twins: prefill against decode, one chunk against many.

Claim: the same tokens get the same logprobs whichever way they were computed: decoded one by one or
  prefilled at once.
Why it breaks in practice: decoding and prefilling are different kernels with different bookkeeping
  of positions, windows and compressed entries; each is tested against itself.
A failure means: one of the two paths reads another context than the other, often at one residue of
  a page, a window or a chunk; the text stays fluent.
Cost: 22 prompts in 3 requests each (15k tokens, 1,500 generated).
Needs: completions of token ids, logprobs of generated and of given tokens, cached tokens in usage.
"""

from fidelity.measure import Measure
from fidelity.twins.phases import DECODED
from fidelity.twins.running import TwinRun


def test_decoding_gives_the_logprobs_of_prefilling_the_same_tokens(measure: Measure) -> None:
    """Decoded and prefilled tokens have the same logprobs in >= 0.80, in each class too."""
    run = TwinRun(measure, DECODED)
    trials = run.asked()
    measure.control("positive", "one generated token is altered before the prefill", run.damaged())
    run.decide(trials)
