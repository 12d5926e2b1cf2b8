"""Multi-turn recall: facts told in earlier turns of a conversation.

Claim: what was told in an earlier turn is recalled, also when it was updated, when tools were
  called and when the model reasoned in between, and as well as when it stands in one message.
Why it breaks in practice: templates drop turns, tool results or system text; a prefix cache joins
  turns with a token missing; reasoning rules of one model family are applied to another.
A failure means: a turn was lost in rendering (fewer prompt tokens than its text needs), or its
  state was lost between two requests (right in one message, wrong over turns).
Cost: 48 conversations of 2 to 7 requests and 48 single messages (26k tokens); 64 follow-ups over a
  cached prefix (20k).
Needs: chat; tools and reasoning where the server has them; prefix_cache for the follow-ups.
"""

from fidelity.checks import cached_follow_up
from fidelity.checks.affording import context_within
from fidelity.checks.conversation import (
    classes_of,
    fitting_lines,
    fresh_of_class,
    one_message_probe,
    paired_probes,
    usable_shapes,
)
from fidelity.checks.second_stage import blame_beside
from fidelity.measure import Measure
from fidelity.probes.dialogue import Outline, Shape
from fidelity.words import Blame

RECALL = 0.80
MARGIN = 0.10
"""By which the turns may be worse than one message with the same facts."""
FACTS = (1, 2, 3, 4, 5)
CACHED_RECALL = 0.90
CACHED_FACTS = (2, 3, 4, 6, 8)
"""Prefixes from about one page of 64 tokens up to four."""
NOTE_LINES = {"quick": (5, 20, 40), "standard": (20, 100, 400), "deep": (100, 800, 3_000)}


def test_facts_told_in_earlier_turns_are_recalled(measure: Measure) -> None:
    """Recall over turns is >= 0.80, and not inferior to one message by more than 0.10."""
    capabilities = measure.deployment.capabilities
    shapes = usable_shapes(
        has_tools=capabilities["tools"].present, has_reasoning=capabilities["reasoning"].present
    )
    count = measure.trials_planned(quick=48, standard=120, deep=300)
    lines = fitting_lines(NOTE_LINES[measure.budget], context_within(measure, 2 * count))
    arms = measure.ask_arms(
        paired_probes(seed=measure.seed, count=count, shapes=shapes, facts=FACTS, lines=lines)
    )
    measure.control(
        "positive",
        "the earlier turns are dropped",
        [
            one_message_probe(
                Outline(seed=f"{measure.seed}-control-{index}", shape=Shape.TURNS, facts=3),
                without_fact=True,
            )
            for index in range(5)
        ],
    )
    measure.open_classes(
        arms[""],
        classes_of,
        lambda name, number: fresh_of_class(
            name, number, seed=measure.seed, shapes=shapes, facts=FACTS, lines=lines
        ),
    )
    measure.decide(
        measure.rate_finding(
            arms[""],
            RECALL,
            title=f"recall over turns >= {RECALL:.2f}",
            blame=blame_beside(arms["one message"]),
        ),
        measure.noninferior_finding(
            arms[""],
            arms["one message"],
            MARGIN,
            title=f"turns lose at most {MARGIN:.2f} against one message with the same facts",
            # a model that is weak in one message already may be weaker still over turns
            blame=blame_beside(arms["one message"]) or Blame.UNKNOWN,
        ),
    )


def test_follow_up_over_a_cached_prefix_is_right_at_every_residue(measure: Measure) -> None:
    """A follow-up that reads its prefix from the cache is right in >= 0.90, at every residue."""
    measure.needs("prefix_cache")
    count = measure.trials_planned(quick=64, standard=128, deep=256)
    measure.control(
        "positive",
        "the message with the facts is left out",
        [
            cached_follow_up.cached_probe(
                seed=f"{measure.seed}-control-{index}", residue=index, facts=3, without_facts=True
            )
            for index in range(4)
        ],
    )
    trials = measure.ask(
        cached_follow_up.cached_probes(seed=measure.seed, count=count, facts=CACHED_FACTS)
    )
    measure.open_classes(
        trials,
        cached_follow_up.classes_of,
        lambda name, number: cached_follow_up.fresh_of_class(
            name, number, seed=measure.seed, facts=CACHED_FACTS
        ),
    )
    measure.rate_at_least(
        trials, CACHED_RECALL, title=f"follow-ups over the cache right in >= {CACHED_RECALL:.2f}"
    )
