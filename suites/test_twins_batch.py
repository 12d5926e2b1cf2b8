"""Twins of the batch: alone or beside strangers, in either order, whatever their parameters.

Claim: a request gets the same tokens and logprobs alone and beside others, in whichever order they
  come and with whichever sampling parameters.
Why it breaks in practice: kernels are chosen by the shape of the batch, rows are sorted and sorted
  back, and a row that is off by one reads a neighbour's position, state or penalties.
A failure means: what a user gets depends on strangers, or carries something of them.
Cost: 22 prompts beside 1 to 7 strangers, 16 beside 5 with other parameters (15k tokens, 12k
  generated), 16 sets of 3 in two orders (20k tokens, 2k generated).
  In each claim one prompt more of about 1,000 tokens, or of 2,000 at a larger budget.
Needs: a gauge of running requests in the metrics; load and disruptive traffic allowed (strangers
  are left as soon as they are not needed).
"""

from fidelity.measure import Measure
from fidelity.twins.batch import BATCHED, MIXED, REORDERED
from fidelity.twins.running import TwinRun


def test_a_batch_with_strangers_answers_as_alone(measure: Measure) -> None:
    """Prompts are answered alike alone and beside strangers in >= 0.80, in each class too."""
    run = TwinRun(measure, BATCHED)
    trials = run.asked()
    measure.control("positive", "one token of the prompt is altered", run.damaged())
    run.decide(trials)


def test_either_order_of_arrival_answers_alike(measure: Measure) -> None:
    """Concurrent requests are answered alike in either order in >= 0.80, in each class too."""
    run = TwinRun(measure, REORDERED)
    trials = run.asked()
    measure.control("positive", "one token of the prompts in reverse is altered", run.damaged())
    run.decide(trials)


def test_other_sampling_parameters_beside_it_change_nothing(measure: Measure) -> None:
    """Prompts are answered alike beside other parameters in >= 0.80, in each class too."""
    run = TwinRun(measure, MIXED)
    trials = run.asked()
    measure.control("positive", "one token of the prompt is altered", run.damaged())
    run.decide(trials)
