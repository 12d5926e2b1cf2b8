"""Multi-turn recall: facts told in earlier turns of a conversation.

Claim: what was told in an earlier turn is recalled, also when it was updated, when tools were
  called and when the model reasoned in between, and as well as when it stands in one message.
Why it breaks in practice: templates drop turns, tool results or system text; a prefix cache joins
  turns with a token missing; reasoning rules of one model family are applied to another.
A failure means: a turn was lost in rendering (fewer prompt tokens than its text needs), or its
  state was lost between two requests (right in one message, wrong over turns).
Cost: 30 conversations of 2 to 7 requests and 30 single messages, about 14k tokens.
Needs: chat; tools and reasoning where the server has them.
"""

from fidelity.checks.conversation import (
    classes_of,
    fresh_of_class,
    one_message_probe,
    paired_probes,
    usable_shapes,
)
from fidelity.dialogue import Outline, Shape
from fidelity.measure import Measure

RECALL = 0.80
MARGIN = 0.10
"""By which the turns may be worse than one message with the same facts."""
FACTS = (1, 2, 3, 4, 5)
NOTE_LINES = {"quick": (5, 20, 60), "standard": (20, 100, 400), "deep": (100, 800, 3_000)}


def test_facts_told_in_earlier_turns_are_recalled(measure: Measure) -> None:
    """Recall over turns is >= 0.80, and not inferior to one message by more than 0.10."""
    capabilities = measure.deployment.capabilities
    shapes = usable_shapes(
        has_tools=capabilities["tools"].present, has_reasoning=capabilities["reasoning"].present
    )
    lines = NOTE_LINES[measure.budget]
    count = measure.trials_planned(quick=30, standard=90, deep=300)
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
            name, number, seed=measure.seed, facts=FACTS, lines=lines
        ),
    )
    measure.decide(
        measure.rate_finding(arms[""], RECALL, title=f"recall over turns >= {RECALL:.2f}"),
        measure.noninferior_finding(
            arms[""],
            arms["one message"],
            MARGIN,
            title=f"turns lose at most {MARGIN:.2f} against one message with the same facts",
        ),
    )
