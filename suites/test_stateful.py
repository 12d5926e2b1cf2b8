"""Stateful: whatever happened on the server before, an answer is what its messages get alone.

Claim: in random games of chats, follow-ups, forks, retries, aborts, strangers at the same time,
  floods and flushes, every answer is the one that the same messages get alone and cold, and says
  nothing that only another conversation was told.
Why it breaks in practice: caches, locks, evictions and clean-ups are right one by one and wrong in
  some order that nobody thought of.
A failure means: state of one request reached another: a fact was lost or leaked, or numbers moved
  beyond rounding and did so again with other words. The shortest script that shows it lies in the
  run's folder, to be replayed and to be committed as a test.
Cost: 10 games of up to 12 requests, each answer asked twice (170 requests, 85k tokens, a quarter
  of them cached); a failure is shortened with up to 60 games more.
Needs: chat; logprobs compare numbers, without them only facts; a flush, logprobs of given text or a
  cache salt isolate the very same tokens. Aborts by call, floods and flushes need disruptive
  traffic, more than two strangers load.
"""

from fidelity.fuzz.claiming import calm_probe, findings_of, hunt, profile_of
from fidelity.fuzz.hunt import Limits
from fidelity.measure import Measure

MOVES = 8
"""Of one game."""
REQUESTS = 10
"""Of one game, strangers included."""
SHRINK_GAMES = 60
TIME_S = {"quick": 300, "standard": 1_800, "deep": 12_000}
"""After which the hunt ends with what it has: inconclusive when games are left and none failed."""


def test_every_answer_is_what_its_messages_get_alone(measure: Measure) -> None:
    """Every answer of random scripts is what the same messages get alone."""
    games = measure.trials_planned(quick=10, standard=60, deep=400)
    measure.control(
        "null",
        "conversations one after the other, nothing disturbed",
        [calm_probe(measure, "calm")],
    )
    measure.control(
        "positive",
        "the fact and the question are altered in the isolated arm",
        [calm_probe(measure, "calm, altered", altered=True)],
    )
    found = hunt(
        measure,
        Limits(
            games=games,
            moves=MOVES,
            requests=REQUESTS,
            shrink_games=SHRINK_GAMES,
            time_s=TIME_S[measure.budget],
        ),
    )
    profile = profile_of(measure, found)
    measure.decide(*findings_of(measure, found, profile), profile=profile)
