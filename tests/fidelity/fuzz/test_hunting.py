"""The hunt: games until one fails, then the shortest that does, and what is proven by it."""

import msgspec
import pytest

from fidelity.errors import TrafficRefused
from fidelity.fuzz.claiming import findings_of
from fidelity.fuzz.hunt import AGAIN, SHRINK, Hunt, Hunted, Limits
from fidelity.fuzz.isolation import Way
from fidelity.fuzz.moves import Kind, Move, Rules, requests_of, traffic_of
from fidelity.fuzz.playing import Can
from fidelity.records import Trial
from fidelity.verdicts.decisions import Claim, all_true_finding
from fidelity.words import Ladder, Outcome, Traffic


class FakeMeasure:
    """Answers a game by a rule, and keeps what was asked: the journal of a run."""

    def __init__(self, breaks, seed=0, held=None):
        self.seed = seed
        self.breaks = breaks
        self.asked = []
        self.held = {} if held is None else held

    def ask(self, probes, *, arm="", concurrency=None):
        assert concurrency == 1
        return [self._one(probe, arm) for probe in probes]

    def _one(self, probe, arm):
        if (arm, probe.key) not in self.held:
            moves = msgspec.convert(probe.recipe["moves"], tuple[Move, ...])
            self.asked.append((arm, moves))
            self.held[arm, probe.key] = Trial(
                id=f"{arm} {probe.key}",
                claim="c",
                suite="stateful",
                probe="script",
                arm=arm,
                key=probe.key,
                ok=not self.breaks(moves),
                recipe=dict(probe.recipe),
            )
        return self.held[arm, probe.key]


ALL = Rules(
    allow=frozenset(Traffic), call=True, flush=True, tools=True, flood_lines=(70,), strangers=4
)
PASSIVE = Rules(allow=frozenset({Traffic.PASSIVE}), tools=True, flood_lines=(70,))


def hunted(breaks, rules=ALL, **options):
    limits = Limits(**{"games": 40, "moves": 8, **options})
    measure = FakeMeasure(breaks)
    return measure, Hunt(measure, Can(), rules, limits).run()


def aborted_and_gone_on(moves):
    """A planted bug: a conversation that goes on after an abort with at least 4 facts."""
    for place, move in enumerate(moves):
        if move.kind is Kind.ABORT and move.facts >= 4:
            later = moves[place + 1 :]
            if any(m.talk == move.talk and m.kind is Kind.FOLLOW_UP for m in later):
                return True
    return False


def test_a_clean_server_is_played_to_the_planned_number():
    measure, found = hunted(lambda moves: False)
    assert found.shortest is None
    assert 30 <= len(found.trials) <= 40
    assert all(requests_of(moves) <= 10 + 2 for _, moves in measure.asked)
    kinds = {move.kind for _, moves in measure.asked for move in moves}
    assert kinds == set(Kind)


def test_a_planted_bug_is_found_and_shortened_to_what_it_needs():
    measure, found = hunted(aborted_and_gone_on)
    moves, _ = found.shortest
    assert [move.kind for move in moves] == [Kind.ABORT, Kind.FOLLOW_UP]
    assert moves[0].facts == 4
    assert not moves[0].by_call
    assert not moves[0].keep
    assert len(found.again) == 2
    assert found.shrunk <= 60
    assert {arm for arm, _ in measure.asked} == {"", SHRINK, AGAIN}


def test_two_more_wordings_are_asked_where_one_of_two_did_not_show_it():
    class EveryOther(FakeMeasure):
        def _one(self, probe, arm):
            trial = super()._one(probe, arm)
            spared = arm == AGAIN and probe.key[-1] in "13"
            return msgspec.structs.replace(trial, ok=True) if spared else trial

    measure = EveryOther(aborted_and_gone_on)
    found = Hunt(measure, Can(), ALL, Limits(games=40, moves=8)).run()
    assert [trial.ok for trial in found.again] == [False, True, False, True]


def test_the_same_seed_hunts_alike_and_a_resumed_hunt_asks_nothing_again():
    first, found = hunted(aborted_and_gone_on)
    resumed = FakeMeasure(aborted_and_gone_on, held=first.held)
    again = Hunt(resumed, Can(), ALL, Limits(games=40)).run()
    assert resumed.asked == []
    assert again.shortest[0] == found.shortest[0]
    assert [t.id for t in again.trials] == [t.id for t in found.trials]


def test_a_shared_server_is_never_flushed_flooded_aborted_by_call_or_crowded():
    measure, found = hunted(lambda moves: False, rules=PASSIVE)
    assert found.trials
    assert {traffic_of(moves) for _, moves in measure.asked} == {Traffic.PASSIVE}
    assert all(len(move.beside) <= 2 for _, moves in measure.asked for move in moves)


def test_shortening_has_its_own_limit():
    _, found = hunted(aborted_and_gone_on, shrink_games=3)
    assert found.shrunk == 3
    assert found.shortest is not None


def test_a_hunt_that_time_ended_says_how_far_it_came():
    _, found = hunted(lambda moves: False, time_s=0.0)
    assert (len(found.trials), found.planned_games) == (0, 40)
    assert hunted(lambda moves: False)[1].planned_games is None
    assert hunted(aborted_and_gone_on)[1].planned_games is None
    held = [script_trial(name, ok=True, way=Way.FLUSH) for name in ("a", "b")]
    late = Hunted(trials=held, planned_games=10)
    first, _ = findings_of(Measured(lambda moves: False), late, None)
    assert first.outcome is Outcome.INCONCLUSIVE
    assert "2 of 10 games" in first.reason
    in_time, _ = findings_of(Measured(lambda moves: False), Hunted(trials=held), None)
    assert in_time.outcome is Outcome.PASS


def test_a_spent_cap_ends_the_hunt_and_is_no_failing_game():
    class Spent(FakeMeasure):
        def _one(self, probe, arm):
            if len(self.asked) == 4:
                raise TrafficRefused("spent")
            return super()._one(probe, arm)

    measure = Spent(lambda moves: False)
    hunt = Hunt(measure, Can(), ALL, Limits(games=40))
    with pytest.raises(TrafficRefused):
        hunt.run()
    assert len(measure.asked) == 4


class Measured(FakeMeasure):
    """Decides as a claim does."""

    folder = None

    def all_true_finding(self, trials, *, title, ladder=None):
        claim = Claim(id="c", suite="stateful", title="t")
        return all_true_finding(claim, trials, title=title, ladder=ladder)


ONE_MOVE = (Move(kind=Kind.OPEN, facts=2),)


def script_trial(name, *, ok, way, rung=Ladder.STRUCTURAL):
    return Trial(
        id=name,
        claim="c",
        suite="stateful",
        probe="script",
        key=name,
        ok=ok,
        cell={"isolation": str(way), "null": "agrees", "rung": str(rung)},
        recipe={"moves": msgspec.to_builtins(ONE_MOVE)},
    )


@pytest.mark.parametrize(
    ("way", "rung", "again", "outcome"),
    [
        (Way.FLUSH, Ladder.STRUCTURAL, (True, True), Outcome.FAIL),
        (Way.FLUSH, Ladder.DRIFT, (False, False), Outcome.FAIL),
        (Way.FLUSH, Ladder.DRIFT, (False, True, False, True), Outcome.FAIL),
        (Way.FLUSH, Ladder.DRIFT, (False, True, True, True), Outcome.INCONCLUSIVE),
        (Way.GIVEN_TEXT, Ladder.SELECTION, (True, True), Outcome.INCONCLUSIVE),
        (Way.OTHER_LINE, Ladder.STRUCTURAL, (False, False), Outcome.FAIL),
        (Way.OTHER_LINE, Ladder.STRUCTURAL, (False, True, False, False), Outcome.INCONCLUSIVE),
    ],
)
def test_what_other_words_do_not_repeat_is_no_proof(way, rung, again, outcome):
    failed = script_trial("a", ok=False, way=way, rung=rung)
    found = Hunted(
        trials=[failed],
        shortest=(ONE_MOVE, failed),
        again=[script_trial(f"again {i}", ok=ok, way=way) for i, ok in enumerate(again)],
    )
    first, _ = findings_of(Measured(lambda moves: False), found, None)
    assert first.outcome is outcome
