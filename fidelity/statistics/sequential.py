"""An e-process on discordant pairs: look after every pair, stop early only for a fail.

E = 2^m * B(lost + 1, gained + 1) is the likelihood ratio of a Beta(1,1) mixture against "both
directions are equally likely"; by Ville's inequality it ever reaches 1/alpha with chance alpha at
most. Source: Ville 1939; Robbins 1970, Ann. Math. Statist. 41, 1397-1409.
"""

import math

from scipy.special import betaln

from fidelity.statistics.stats import ALPHA


def e_value(lost: int, gained: int) -> float:
    """Return the evidence against "losses and gains are equally likely" after these pairs."""
    return math.exp((lost + gained) * math.log(2.0) + float(betaln(lost + 1, gained + 1)))


def may_stop_for_fail(lost: int, gained: int, alpha: float = ALPHA) -> bool:
    """Return whether the losses alone already convict; a pass waits for the planned number."""
    return lost > gained and e_value(lost, gained) >= 1.0 / alpha
