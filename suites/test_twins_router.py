"""Twin of the route: through the router or to a worker itself.

Claim: a prompt gets the same tokens and logprobs through the router and from a worker directly.
Why it breaks in practice: a router rewrites bodies, fills in defaults, keeps a cache of its own,
  and hands a prompt's state from one worker to another.
A failure means: something between the client and the worker changes what the model is asked, or
  state is lost on its way between workers.
Cost: 16 prompts in 5 requests each (16k tokens).
  In each claim one prompt more of about 1,000 and one of 2,000 tokens, longer ones by budget.
Needs: a deployment with roles; a worker that answers by itself.
"""

import pytest

from fidelity.measure import Measure
from fidelity.twins.router import ROUTED
from fidelity.twins.running import TwinRun


@pytest.mark.fidelity_requires("router")
def test_a_router_answers_as_its_worker(measure: Measure) -> None:
    """Prompts are answered alike by router and worker in >= 0.80, in each class too."""
    run = TwinRun(measure, ROUTED)
    trials = run.asked()
    measure.control("positive", "one token of the worker's prompt is altered", run.damaged())
    run.decide(trials)
