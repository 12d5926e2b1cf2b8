"""Needle sweep: one fact in one long message.

Claim: a fact is found in its context at every length, every depth and every residue of the length,
  and a line that does not say what it is about is found by the heading of its section, far above.
Why it breaks in practice: page tables, position scaling, sparse selection and compressed windows
  go wrong at one depth, beyond one length, or at one residue of the length; text stays fluent.
  Layers that compress heavily tell a line what stands far above it: a fact that says itself what
  it is about is found without them.
A failure means: tokens were lost, moved or never selected between the prompt and the attention.
Cost: 14 prompts a length (226k tokens to 8,192), 64 neighbouring lengths (14k), boundaries (6k),
  14 prompts with sections a length (100k to 4,096), 30 short prompts that show what the model can
  do where nothing can get lost (8k);
  a server that is too slow for the budget is asked its shorter lengths, and the finding says so.
Needs: chat; lengths are exact to the token where the server has a tokenizer endpoint.
"""

from fidelity.checks.affording import afforded, room_of
from fidelity.checks.competence import kinds_within_reach
from fidelity.checks.recall import needle_probe
from fidelity.checks.sweeps import (
    boundary_sweep,
    by_length,
    classes_beside_kind,
    classes_of,
    fresh_of_class,
    residue_sweep,
    row_lengths,
    sweep,
)
from fidelity.measure import Measure
from fidelity.probes.needles import NeedleKind

RECALL_AT_EACH_LENGTH = 0.80
RECALL_OVER_ALL = 0.95
SHORTEST_TOKENS = 256
LONGEST_TOKENS = {"quick": 8_192, "standard": 32_768, "deep": 131_072}
KINDS = (NeedleKind.SINGLE, NeedleKind.SINGLE, NeedleKind.NEAR_DUPLICATE, NeedleKind.KEY_VALUE)
BOUNDARIES_TOKENS = {
    "quick": (128, 256, 512, 1_024),
    "standard": (128, 256, 512, 1_024, 2_048, 4_096),
    "deep": (128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384),
}
FIRST_RESIDUE_TOKENS = 193
RECALL_BY_HEADING = 0.80
SHORTEST_SECTIONS_TOKENS = 1_024
LONGEST_SECTIONS_TOKENS = {"quick": 4_096, "standard": 16_384, "deep": 65_536}


def test_needle_is_found_at_every_length_depth_and_residue(measure: Measure) -> None:
    """Recall is >= 0.80 at each length and >= 0.95 over all lengths and residues."""
    limit = measure.deployment.capabilities.max_model_len
    each = measure.trials_planned(quick=14, standard=59, deep=93)
    boundaries = BOUNDARIES_TOKENS[measure.budget]
    asked = afforded(
        row_lengths(SHORTEST_TOKENS, LONGEST_TOKENS[measure.budget], limit),
        each=each,
        neighbours=measure.trials_planned(quick=64, standard=128, deep=256),
        neighbour_tokens=FIRST_RESIDUE_TOKENS,
        beside_tokens=3 * sum(boundaries),
        room_tokens=room_of(measure),
    )
    measure.note(asked.note)
    rows = asked.rows
    kinds, undecided = kinds_within_reach(measure, KINDS)
    probes = [
        probe
        for row in reversed(rows)
        for probe in sweep(seed=measure.seed, row_tokens=row, trials=each, kinds=kinds)
    ]
    probes += boundary_sweep(seed=measure.seed, boundaries=boundaries, limit_tokens=rows[-1])
    probes += residue_sweep(
        seed=measure.seed, first_tokens=FIRST_RESIDUE_TOKENS, count=asked.neighbours
    )
    trials = measure.ask(probes)
    measure.control(
        "positive",
        "the fact is cut out of the context",
        [
            needle_probe(
                seed=f"{measure.seed}-control-{depth}",
                row_tokens=SHORTEST_TOKENS,
                prompt_tokens=SHORTEST_TOKENS,
                depth_frac=depth,
                without_fact=True,
            )
            for depth in (0.0, 0.25, 0.5, 0.75, 1.0)
        ],
    )
    opened = measure.open_classes(
        trials,
        classes_of,
        lambda name, count: fresh_of_class(name, count, seed=measure.seed, row_tokens=rows),
    )
    measure.decide(
        measure.rate_finding(
            trials, RECALL_OVER_ALL, title=f"recall >= {RECALL_OVER_ALL:.2f} over all lengths"
        ),
        *(
            measure.rate_finding(
                found,
                RECALL_AT_EACH_LENGTH,
                title=f"recall >= {RECALL_AT_EACH_LENGTH:.2f} at {row} tokens",
            )
            for row, found in by_length(trials, opened, rows).items()
        ),
        *undecided,
    )


def test_a_line_is_found_by_the_heading_of_its_section(measure: Measure) -> None:
    """Recall of lines that only a heading far above them explains is >= 0.80."""
    limit = measure.deployment.capabilities.max_model_len
    each = measure.trials_planned(quick=14, standard=22, deep=59)
    asked = afforded(
        row_lengths(SHORTEST_SECTIONS_TOKENS, LONGEST_SECTIONS_TOKENS[measure.budget], limit),
        each=each,
        room_tokens=room_of(measure),
    )
    measure.note(asked.note)
    kinds, undecided = kinds_within_reach(measure, [NeedleKind.SECTION])
    if not kinds:
        measure.decide(*undecided)
    trials = measure.ask(
        [
            probe
            for row in reversed(asked.rows)
            for probe in sweep(seed=measure.seed, row_tokens=row, trials=each, kinds=kinds)
        ]
    )
    measure.control(
        "positive",
        "the line is cut out of its section",
        [
            needle_probe(
                seed=f"{measure.seed}-control-{depth}",
                row_tokens=SHORTEST_TOKENS,
                prompt_tokens=SHORTEST_TOKENS,
                depth_frac=depth,
                kind=NeedleKind.SECTION,
                without_fact=True,
            )
            for depth in (0.0, 0.25, 0.5, 0.75, 1.0)
        ],
    )
    measure.open_classes(
        trials,
        classes_beside_kind,
        lambda name, count: fresh_of_class(
            name,
            count,
            seed=measure.seed,
            row_tokens=asked.rows[:1],
            kind=NeedleKind.SECTION,
        ),
    )
    measure.rate_at_least(
        trials,
        RECALL_BY_HEADING,
        title=f"recall by a heading far above >= {RECALL_BY_HEADING:.2f}",
    )
