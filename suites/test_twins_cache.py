"""Twins of the prefix cache: cold or cached, before or after eviction, before or after a flush.

Claim: a prompt gets the same tokens and logprobs whether its prefix is computed or read from the
  cache, and again after that prefix was evicted or flushed.
Why it breaks in practice: a hit may leave a tail of one token, end exactly at a page, or lack a
  state that only a cold run writes; pages come back from eviction with what their last owner left.
A failure means: pages are shared that do not hold what their key says, or are reused uncleared.
Cost: 64 prompts cold and cached (45k tokens); 22 around an eviction (25k, and a flood of the size
  of the pools) and 22 around a flush (25k).
  In each claim one prompt more of about 1,000 and one of 2,000 tokens, longer ones by budget.
Needs: cached tokens in usage; disruptive traffic allowed for the flood and the flush.
"""

from fidelity.measure import Measure
from fidelity.twins.cache import CACHED, EVICTED, FLUSHED
from fidelity.twins.running import TwinRun


def test_a_cached_prefix_answers_as_a_cold_one(measure: Measure) -> None:
    """Cold and cached prompts are answered alike in >= 0.80, in each class too."""
    run = TwinRun(measure, CACHED)
    trials = run.asked()
    measure.control("positive", "one token of the cached prompt is altered", run.damaged())
    run.decide(trials)


def test_an_evicted_prefix_is_answered_as_before(measure: Measure) -> None:
    """Prompts are answered alike before and after eviction in >= 0.80, in each class too."""
    run = TwinRun(measure, EVICTED)
    trials = run.asked()
    measure.control("positive", "one token of the later prompt is altered", run.damaged())
    run.decide(trials)


def test_a_flushed_prefix_is_answered_as_before(measure: Measure) -> None:
    """Prompts are answered alike before and after a flush in >= 0.80, in each class too."""
    run = TwinRun(measure, FLUSHED)
    trials = run.asked()
    measure.control("positive", "one token of the later prompt is altered", run.damaged())
    run.decide(trials)
