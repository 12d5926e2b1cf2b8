"""Twin of a server's life: one of its first requests against the same one, many requests later.

Claim: a request gets the same tokens and logprobs early in a server's life and after many others.
Why it breaks in practice: slots, scales, graphs and tables are set up by the first requests and
  reused, or run out, behind a number of them; a fresh server passes every test.
A failure means: what is served depends on how long the server has run; a restart cures it.
Cost: 16 prompts in 3 requests each, 200 short ones between (15k tokens); it comes first in a run.
  In each claim one prompt more of about 1,000 and one of 2,000 tokens, longer ones by budget.
Needs: nothing; past the prefix cache where the server gives logprobs of given tokens.
"""

import pytest

from fidelity.measure import Measure
from fidelity.twins.life import AGED
from fidelity.twins.running import TwinRun


@pytest.mark.fidelity_first
def test_a_late_request_is_answered_as_an_early_one(measure: Measure) -> None:
    """Requests are answered alike early and 200 requests later in >= 0.80, in each class too."""
    run = TwinRun(measure, AGED)
    trials = run.asked()
    measure.control("positive", "one token of the late prompt is altered", run.damaged())
    run.decide(trials)
