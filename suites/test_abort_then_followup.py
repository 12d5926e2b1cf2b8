"""Abort, then follow up: an aborted request leaves nothing behind.

Claim: after a request was aborted, at any moment and in any way, a follow-up on the same prefix
  reads its whole context, and requests that ran at the same time are unharmed.
Why it breaks in practice: clean-up enters pages in the prefix cache that were never computed, or
  gives pages away that somebody still reads or writes; the victim is often a bystander.
A failure means: pages were published half-written, or recycled too early; the server then answers
  fluently from somebody else's state until its cache is flushed.
Cost: 18 aborted requests, each asked for all its facts, and 18 undisturbed (40k tokens beside the
  cache); 14 storms around bystanders (20k); 2 storms with gauges (9k).
Needs: chat; disruptive traffic allowed; abort by call and metrics where the server has them.
"""

from fidelity.checks import abort_plans
from fidelity.checks.abort import aborted_probe, undisturbed_probe
from fidelity.checks.abort_plans import Pace, Plan, plans, ways
from fidelity.checks.affording import context_within
from fidelity.checks.bystanders import bystander_probe, classes_of
from fidelity.checks.gauges import gauges_probe
from fidelity.checks.second_stage import blame_beside, missed, with_fresh
from fidelity.measure import Measure
from fidelity.probes.probe import Probe
from fidelity.words import Traffic

RECALL = 0.80
MARGIN = 0.20
"""By which aborted contexts may be read worse than undisturbed ones."""
UNHARMED = 0.80
VICTIMS = 4
"""Aborted at once around each bystander."""
STORM = 16
FACTS = (10, 14, 20)
LINES_BETWEEN = {"quick": 1, "standard": 4, "deep": 20}
"""Of filler before each fact: contexts of 1k, 2k and 10k tokens, several chunks of any server."""


def test_follow_up_after_an_abort_reads_its_whole_context(measure: Measure) -> None:
    """After an abort all facts are read in >= 0.80, and not inferior to no abort by over 0.20."""
    measure.allow(Traffic.DISRUPTIVE)
    hows = ways(measure.deployment.capabilities["abort"].present)
    count = measure.trials_planned(quick=18, standard=63, deep=180)
    limit = context_within(measure, 2 * count)
    pace = Pace()

    def planned(number: int, point: str = "") -> list[Plan]:
        return plans(
            seed=measure.seed,
            count=number,
            facts=FACTS,
            hows=hows,
            lines_between=LINES_BETWEEN[measure.budget],
            limit_tokens=limit,
            point=point,
        )

    first = planned(count)
    arms = measure.ask_arms(
        {
            "undisturbed": [undisturbed_probe(plan, pace) for plan in first],
            "": [aborted_probe(plan, pace) for plan in first],
        }
    )
    measure.control(
        "positive",
        "the message with the facts is dropped",
        [undisturbed_probe(plan, pace, without_facts=True) for plan in first[:4]],
    )
    opened = measure.open_classes(
        arms[""],
        abort_plans.classes_of,
        lambda name, number: [
            aborted_probe(plan, pace) for plan in planned(number, name.removeprefix("point="))
        ],
    )
    measure.decide(
        measure.rate_finding(
            with_fresh(arms[""], opened),
            RECALL,
            title=f"all facts read after an abort in >= {RECALL:.2f}",
            blame=blame_beside(arms["undisturbed"]),
        ),
        measure.noninferior_finding(
            arms[""],
            arms["undisturbed"],
            MARGIN,
            title=f"an abort loses at most {MARGIN:.2f} against none",
        ),
    )


def test_bystanders_of_aborts_are_unharmed(measure: Measure) -> None:
    """Requests that run during a storm of aborts are all right in >= 0.80 of the storms."""
    measure.allow(Traffic.DISRUPTIVE)
    hows = ways(measure.deployment.capabilities["abort"].present)
    count = measure.trials_planned(quick=14, standard=59, deep=93)

    def bystanders(victims: int, number: int, stage: str = "") -> list[Probe]:
        return [
            bystander_probe(seed=f"{measure.seed}-{stage}{index}", victims=victims, hows=hows)
            for index in range(number)
        ]

    trials = measure.ask(bystanders(VICTIMS, count))
    measure.control(
        "positive",
        "the bystander's facts are not sent",
        [
            bystander_probe(
                seed=f"{measure.seed}-control-{index}", victims=0, hows=hows, without_facts=True
            )
            for index in range(2)
        ],
    )
    opened = measure.open_classes(
        trials, classes_of, lambda _, number: bystanders(VICTIMS, number, "fresh ")
    )
    calm = measure.ask(bystanders(0, count), arm="calm") if missed(trials) else []
    measure.rate_at_least(
        with_fresh(trials, opened),
        UNHARMED,
        title=f"bystanders of {VICTIMS} aborts unharmed in >= {UNHARMED:.2f}",
        effect_name="unharmed",
        blame=blame_beside(calm),
    )


def test_gauges_return_after_a_storm_of_aborts(measure: Measure) -> None:
    """Running, queued and used gauges return to where they were before the storm."""
    measure.allow(Traffic.DISRUPTIVE)
    measure.needs("metrics")
    hows = ways(measure.deployment.capabilities["abort"].present)
    count = measure.trials_planned(quick=2, standard=4, deep=8)
    measure.control(
        "positive",
        "one request is still running",
        [gauges_probe(seed=f"{measure.seed}-control", victims=0, hows=hows, left_running=True)],
    )
    trials = measure.ask(
        [
            gauges_probe(seed=f"{measure.seed}-{index}", victims=STORM, hows=hows)
            for index in range(count)
        ],
        concurrency=1,
    )
    measure.all_true(trials, title=f"gauges return after {STORM} aborts at once")
