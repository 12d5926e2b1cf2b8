"""Lets Hypothesis play games against a deployment, and shortens the first that fails.

Every game is a trial of the run's journal, known by its moves: what was played once is never played
again, neither by the shrinker nor by a resumed run. Deterministic from the run's seed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis.errors import HypothesisException
from hypothesis.stateful import run_state_machine_as_test

from fidelity.fuzz.machine import Failed, machine_of
from fidelity.fuzz.moves import Kind, Moves, Rules, Style, digest, requests_of
from fidelity.fuzz.phrasing import script_of
from fidelity.fuzz.playing import Can
from fidelity.fuzz.shrinking import smaller
from fidelity.fuzz.trying import script_probe
from fidelity.probes.probe import Probe

if TYPE_CHECKING:
    from fidelity.measure import Measure
    from fidelity.records import Trial

SHRINK = "shrink"
AGAIN = "again"
REPEATS = 2
"""Of the shortest game, with other words: does it fail again? As many more where one did and the
other did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a hunt may go.

    Attributes:
        games: played at most while none fails.
        moves: of one game.
        requests: of one game.
        shrink_games: played at most to make the first failing game shorter.
        time_s: of all of it; what was found by then counts.
    """

    games: int
    moves: int = 8
    requests: int = 10
    shrink_games: int = 60
    time_s: float = 300.0


@dataclass(slots=True)
class Hunted:
    """What a hunt came to.

    Attributes:
        trials: of the games played until one failed.
        shortest: the shortest failing game and its trial; None when none failed.
        again: trials of that game with other words.
        shrunk: how many games were played to shorten it.
        planned_games: how many were to be played, when time ran out before; else None.
    """

    trials: list[Trial] = field(default_factory=list)
    shortest: tuple[Moves, Trial] | None = None
    again: list[Trial] = field(default_factory=list)
    shrunk: int = 0
    planned_games: int | None = None


class Hunt:
    """One hunt of one claim."""

    def __init__(self, measure: Measure, can: Can, rules: Rules, limits: Limits) -> None:
        """Play nothing yet."""
        self._measure = measure
        self._can = can
        self._rules = rules
        self._limits = limits
        self._known: dict[str, bool] = {}
        self._stop: Exception | None = None
        self._deadline = time.monotonic() + limits.time_s
        self.found = Hunted()

    def run(self) -> Hunted:
        """Play until a game fails or the limits are reached; shorten what failed.

        Raises:
            EndpointError: the server stopped answering altogether.
            TrafficRefused: a cap of the run is spent.
        """
        self._let_hypothesis_play()
        self._raise_what_stopped()
        if self.found.shortest is not None:
            self._shorten()
            self._raise_what_stopped()
            self._repeat(self.found.shortest[0])
        return self.found

    def _let_hypothesis_play(self) -> None:
        game = hypothesis.seed(self._measure.seed)(machine_of(self._rules, self._plays_well))
        options = hypothesis.settings(
            max_examples=self._limits.games,
            stateful_step_count=self._limits.moves,
            deadline=None,
            derandomize=False,
            database=None,
            print_blob=False,
            report_multiple_bugs=False,
            verbosity=hypothesis.Verbosity.quiet,
            phases=(hypothesis.Phase.generate,),  # moves are shortened as moves: see `shrinking`
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        try:
            run_state_machine_as_test(game, settings=options)
        except Failed:
            pass  # the shortest one is kept where it was played
        except HypothesisException as trouble:
            if self.found.shortest is None:
                self._stop = self._stop or trouble

    def _plays_well(self, moves: Moves) -> bool:
        """Play a game unless it was played; True also when the hunt is over."""
        name = digest(moves)
        if name in self._known:
            return self._known[name]
        if self._over():
            return True
        trial = self._play(moves, name)
        if trial is None:
            return True
        self._known[name] = trial.ok is not False
        if trial.ok is False:
            best = self.found.shortest
            if best is None or _size(moves) < _size(best[0]):
                self.found.shortest = (moves, trial)
        return self._known[name]

    def _over(self) -> bool:
        if self._stop is not None:
            return True
        late, games = time.monotonic() > self._deadline, self._limits.games
        if self.found.shortest is None:  # Hypothesis counts only what it finds interesting
            done = len(self.found.trials) >= games
            if late and not done:
                self.found.planned_games = games
            return late or done
        return late or self.found.shrunk >= self._limits.shrink_games

    def _play(self, moves: Moves, name: str) -> Trial | None:
        shrinking = self.found.shortest is not None
        try:
            (trial,) = self._measure.ask(
                [self.probe(moves, name)], arm=SHRINK if shrinking else "", concurrency=1
            )
        except Exception as stop:  # noqa: BLE001 - Hypothesis would take it for a failing game
            self._stop = stop
            return None
        if shrinking:
            self.found.shrunk += 1
        else:
            self.found.trials.append(trial)
        return trial

    def probe(self, moves: Moves, name: str, *, altered: bool = False) -> Probe:
        """Return the probe of a game; its name and the run's seed give all of its words."""
        seed = f"{self._measure.seed} {name}"
        return script_probe(
            script_of(moves, seed=seed),
            self._can,
            key=name,
            recipe=recipe_of(moves, seed),
            altered=altered,
        )

    def _shorten(self) -> None:
        """Drop and simplify moves while the game fails; each success begins anew."""
        while self._shortened():
            pass

    def _shortened(self) -> bool:
        best = self.found.shortest
        if best is None:
            return False
        for candidate in smaller(best[0]):
            if self._over():
                return False
            self._plays_well(candidate)
            if self.found.shortest is not best:
                return True
        return False

    def _repeat(self, moves: Moves) -> None:
        name = digest(moves)
        for first in (0, REPEATS):
            numbers = range(first, first + REPEATS)
            probes = [self.probe(moves, f"{name} {AGAIN} {number}") for number in numbers]
            self.found.again += self._measure.ask(probes, arm=AGAIN, concurrency=1)
            if len({trial.ok for trial in self.found.again}) == 1:
                return

    def _raise_what_stopped(self) -> None:
        if self._stop is not None:
            raise self._stop


def recipe_of(moves: Moves, seed: str) -> dict[str, Any]:
    """Return the recipe of a game: it rebuilds the script."""
    import msgspec

    return {"builder": "script", "seed": seed, "moves": msgspec.to_builtins(moves)}


def _size(moves: Moves) -> tuple[int, int, int, int]:
    texts = sum(move.facts + move.lines for move in moves)
    special = sum(
        (move.style is not Style.GREEDY)
        + move.by_call
        + move.keep
        + (move.kind is Kind.ABORT and move.after != 1)
        for move in moves
    )
    return requests_of(moves), len(moves), texts, special
