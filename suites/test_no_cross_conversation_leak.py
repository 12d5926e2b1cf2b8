"""No cross-conversation leak: what A was told never shows in B.

Claim: conversations that share a cached prefix keep their secrets, one after the other and many
  at once; each recalls its own, and what the shared prefix says.
Why it breaks in practice: slots and hand-off buffers are reused before they are read, hash hits
  are taken without comparing tokens, the batch's rows are mixed up.
A failure means: somebody reads somebody else's state. A foreign canary is a structural fault
  whatever else is right.
Cost: 16 conversations one after the other and 32 at once, 4 requests each (18k tokens).
Needs: chat; load traffic allowed for many at once.
"""

import pytest

from fidelity.checks.leak import (
    canary_probe,
    classes_of,
    crowd_probes,
    fresh_of_class,
    recall_of,
)
from fidelity.measure import Measure
from fidelity.words import Ladder, Traffic

OWN_RECALL = 0.80
AT_ONCE = {"one after the other": 1, "many at once": 16}


@pytest.mark.parametrize("order", AT_ONCE)
def test_no_canary_of_one_conversation_shows_in_another(measure: Measure, order: str) -> None:
    """No canary of another conversation shows, and its own is recalled in >= 0.80."""
    sizes = {
        "one after the other": measure.trials_planned(quick=16, standard=32, deep=64),
        "many at once": measure.trials_planned(quick=32, standard=96, deep=256),
    }
    together = AT_ONCE[order]
    traffic = Traffic.LOAD if together > 1 else Traffic.PASSIVE
    measure.allow(traffic)
    crowds = [(f"{measure.seed} {name}", size) for name, size in sizes.items()]
    swapped = [(f"{name} swapped", 4) for name, _ in crowds]
    seed, size = f"{measure.seed} {order}", sizes[order]
    measure.control(
        "positive",
        "two conversations are swapped",
        [
            canary_probe(seed=f"{seed} swapped", size=4, member=index, swapped=True, aim=(4, index))
            for index in range(4)
        ],
    )
    trials = measure.ask(
        crowd_probes(seed=seed, size=size, beside=[*crowds, *swapped], traffic=traffic),
        concurrency=together,
    )
    measure.open_classes(
        recall_of(trials), classes_of, lambda name, count: fresh_of_class(name, count, seed=seed)
    )
    measure.decide(
        measure.all_true_finding(
            trials, title=f"no foreign canary, {order}", ladder=Ladder.STRUCTURAL
        ),
        measure.rate_finding(
            recall_of(trials),
            OWN_RECALL,
            title=f"shared fact and own canary recalled in >= {OWN_RECALL:.2f}",
        ),
    )
