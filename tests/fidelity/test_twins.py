"""Twins: what rounding may explain and what it may not, the floor, the plans, the meeting."""

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelity.endpoint.replies import Reply, TokenLogprob, TopToken
from fidelity.statistics.divergence import Flip, ScoredToken
from fidelity.twins.answers import Heard, Names, tokens_of
from fidelity.twins.comparison import HeldNull, details_of, held_null, part, part_texts, rung_of
from fidelity.twins.floor import FLOOR_NATS, judge_floor
from fidelity.twins.plans import Sweep, classes_of, fresh_of_class, plans
from fidelity.twins.room import Room
from fidelity.twins.scene import Scene
from fidelity.words import Ladder, Outcome

FP32, BF16 = "float32", "bfloat16"


def arm(*logprobs: float, ids=None, second: float = -3.0) -> tuple[ScoredToken, ...]:
    ids = ids or range(10, 10 + len(logprobs))
    return tuple(
        ScoredToken(i, lp, ((i, lp), (i + 500, second)))
        for i, lp in zip(ids, logprobs, strict=True)
    )


class TestParting:
    def test_equal_arms_are_exact(self):
        found = part(arm(-0.5, -0.1), arm(-0.5, -0.1), dtype=FP32)
        assert found.agrees
        assert found.equal
        assert rung_of(found, found) is Ladder.EXACT

    def test_what_the_dtype_rounds_agrees_and_what_it_cannot_parts_at_its_place(self):
        one, other = arm(-0.5, -0.5, -0.5), arm(-0.5, -0.6, -0.5)
        assert part(one, other, dtype=BF16).agrees
        found = part(one, other, dtype=FP32)
        assert not found.agrees
        assert (found.first, found.at) == (1, 1)
        assert rung_of(found, part(one, one, dtype=FP32)) is Ladder.DRIFT

    def test_one_wrong_token_is_not_averaged_away(self):
        one = arm(*[-0.5] * 400)
        other = list(one)
        other[390] = other[390]._replace(logprob=-0.9, top=((400, -0.9), (900, -3.0)))
        assert part(one, other, dtype=BF16).mean_nats < 0.002
        assert not part(one, other, dtype=BF16).agrees

    def test_a_drift_of_every_token_parts_though_no_token_is_far(self):
        assert not part(arm(*[-0.5] * 40), arm(*[-0.6] * 40), dtype=BF16).agrees

    def test_another_token_from_equal_probabilities_parts(self):
        """The distributions are the same to the bit; the arm chose another token all the same."""
        one = (ScoredToken(1, -0.1, ((1, -0.1), (2, -2.5))),)
        other = (ScoredToken(2, -2.5, ((1, -0.1), (2, -2.5))),)
        for sampled in (False, True):
            found = part(one, other, dtype=BF16, sampled=sampled)
            assert not found.agrees
            assert found.first == 0

    def test_a_tie_that_rounding_turns_agrees_and_ends_the_comparison(self):
        one = (ScoredToken(1, -0.69, ((1, -0.69), (2, -0.70))), *arm(-0.2))
        other = (ScoredToken(2, -0.69, ((1, -0.70), (2, -0.69))), *arm(-0.9))
        found = part(one, other, dtype=BF16)
        assert found.agrees
        assert found.tokens == 1

    def test_sampled_tokens_from_rounded_probabilities_may_differ(self):
        one = (ScoredToken(1, -1.0, ((1, -1.0), (2, -1.6))),)
        other = (ScoredToken(2, -1.61, ((1, -1.01), (2, -1.61))),)
        assert part(one, other, dtype=BF16, sampled=True).agrees
        assert not part(one, other, dtype=BF16).agrees

    def test_a_shorter_arm_and_another_text_are_structural(self):
        shorter = part(arm(-0.5, -0.5), arm(-0.5), dtype=BF16)
        assert not shorter.agrees
        assert rung_of(shorter, shorter) is Ladder.STRUCTURAL
        assert not part(arm(-0.5), arm(-0.5), dtype=BF16, shape="text").agrees

    def test_texts_alone_are_equal_or_not(self):
        assert part_texts("abc", "abc").agrees
        assert part_texts("abc", "abd").first == 2
        assert not part_texts("abc", "ab").agrees

    def test_a_noisy_null_arm_is_no_floor_to_hide_under(self):
        one, far = arm(-0.5), arm(-1.5)
        twin, null = part(one, far, dtype=BF16), part(one, far, dtype=BF16)
        assert rung_of(twin, null) is not Ladder.ROUNDING

    @given(st.lists(st.floats(-8, 0), min_size=1, max_size=30), st.floats(0, 2))
    def test_agreement_is_symmetric_where_the_tokens_are_the_same(self, logprobs, step):
        other = [lp - step if at % 3 == 0 else lp for at, lp in enumerate(logprobs)]
        one_way = part(arm(*logprobs), arm(*other), dtype=BF16)
        back = part(arm(*other), arm(*logprobs), dtype=BF16)
        assert one_way.nats == pytest.approx(back.nats)
        assert one_way.lost == back.lost

    def test_what_the_journal_keeps_gives_the_null_arm_back(self):
        null = part(arm(-0.5), arm(-0.7), dtype=BF16)
        held = held_null(details_of(null, null))
        assert held is not None
        assert held.mean_abs_uncertain == pytest.approx(0.2)
        assert held_null({}) is None


class TestFloor:
    def test_small_noise_passes_and_says_how_small(self):
        found = judge_floor([HeldNull(0.01, ()), HeldNull(0.03, ()), HeldNull(None, ())])
        assert (found.outcome, found.pairs) == (Outcome.PASS, 3)
        assert found.nats == pytest.approx(0.02)

    def test_noise_above_the_bound_fails_by_a_test_over_prompts(self):
        found = judge_floor([HeldNull(value, ()) for value in (0.09, 0.11, 0.1, 0.12, 0.1)])
        assert found.outcome is Outcome.FAIL
        assert found.p_value < 0.001

    def test_a_mean_that_one_prompt_makes_is_not_shown(self):
        found = judge_floor([HeldNull(value, ()) for value in (0.0, 0.0, 0.0, 0.9)])
        assert found.nats > FLOOR_NATS
        assert found.outcome is Outcome.INCONCLUSIVE

    def test_one_flip_beyond_rounding_fails_by_itself(self):
        found = judge_floor([HeldNull(0.0, (Flip(3, 0.4),)), HeldNull(0.0, ())])
        assert (found.outcome, found.p_value) == (Outcome.FAIL, 0.0)

    def test_nothing_compared_is_inconclusive(self):
        assert judge_floor([]).outcome is Outcome.INCONCLUSIVE


class TestNames:
    def test_alternatives_by_text_are_those_by_id(self):
        spoken = Reply(
            request_id="a",
            path="",
            token_ids=(7,),
            logprobs=(TokenLogprob(token="x", logprob=-0.1, top=(top("x", -0.1), top("y", -3))),),
        )
        given_ids = Reply(
            request_id="b",
            path="",
            prompt_logprobs=(
                None,
                TokenLogprob(
                    token="x",
                    logprob=-0.1,
                    token_id=7,
                    top=(top("x", -0.1, 7), top("y", -3, 9)),
                ),
            ),
        )
        names = Names()
        names.learn([spoken, given_ids])
        one = tokens_of(Heard(reply=spoken), names)
        other = tokens_of(Heard(reply=given_ids, given_from=1), names)
        assert one == other
        assert part(one, other, dtype=FP32).equal

    def test_parts_of_characters_share_a_text_and_no_logprob(self):
        entry = TokenLogprob(
            token="\ufffd", logprob=-0.2, top=(top("\ufffd", -0.2), top("\ufffd", -9))
        )
        reply = Reply(request_id="a", path="", token_ids=(5,), logprobs=(entry,))
        names = Names()
        names.learn([reply])
        (token,) = tokens_of(Heard(reply=reply), names)
        assert dict(token.top)[5] == -0.2
        assert len(token.top) == 2


def top(text, logprob, token_id=None):
    return TopToken(token=text, logprob=logprob, token_id=token_id)


SWEEP = Sweep(low=81, high=330, answers=(8, 20), kinds=("a=x", "a=y"))
ROOM = Room(page=64, chunk=256, dtype=FP32, limit_tokens=4096)


class TestPlans:
    def test_each_side_of_each_boundary_and_all_residues_of_sixteen_come(self):
        found = plans(SWEEP, ROOM, seed=1, count=40)
        assert len({plan.key for plan in found}) == 40
        lengths = {plan.length for plan in found}
        assert {127, 128, 129, 255, 256, 257} <= lengths
        assert {plan.length % 16 for plan in found} == set(range(16))
        assert {plan.kind for plan in found} == {"a=x", "a=y"}

    def test_one_chunk_stays_within_one(self):
        one = Sweep(low=81, high=330, answers=(8,), one_chunk=True)
        found = plans(one.fitted(ROOM), ROOM, seed=1, count=60)
        assert max(plan.length for plan in found) + 8 <= 256

    def test_what_must_be_cached_is_longer_than_a_page_of_any_size(self):
        cached = Sweep(low=81, high=330, answers=(8,), one_chunk=True, past_a_page=True)
        for page, chunk in ((16, 256), (64, 256), (128, 256), (256, 512), (512, None)):
            room = Room(page=page, chunk=chunk, limit_tokens=4096)
            found = plans(cached.fitted(room), room, seed=1, count=30)
            assert len({plan.key for plan in found}) == 30
            assert min(plan.length for plan in found) > page + 1

    @pytest.mark.parametrize(
        ("name", "holds"),
        [
            ("residue_64=17", lambda plan: plan.length % 64 == 17),
            ("residue_4=3", lambda plan: plan.length % 4 == 3),
            ("boundary=256+1", lambda plan: plan.length == 257),
            ("depth_frac=0.25", lambda plan: plan.depth_frac == 0.25),
            ("answer_tokens=20", lambda plan: plan.tokens == 20),
            ("a=y", lambda plan: plan.kind == "a=y"),
            ("length_band=0", lambda plan: 81 <= plan.length < 81 + 63),
        ],
    )
    def test_a_class_is_asked_with_prompts_of_exactly_that_class(self, name, holds):
        found = fresh_of_class(SWEEP, name, seed=1, count=22)
        assert len({plan.key for plan in found}) == 22
        assert all(holds(plan) for plan in found)
        assert all(81 <= plan.length <= 330 for plan in found)

    def test_every_class_of_a_trial_can_be_asked_again(self):
        from fidelity.records import Trial

        for plan in plans(SWEEP, ROOM, seed=1, count=20):
            trial = Trial(id="t", claim="c", suite="s", probe="p", cell=plan.cell)
            for name in classes_of(SWEEP, trial):
                assert fresh_of_class(SWEEP, name, seed=1, count=3)


class TestScene:
    def test_all_wait_for_the_event_and_it_happens_once(self):
        log: list[str] = []
        scene = Scene()

        async def event():
            log.append("event")

        async def script(name):
            async with scene.member():
                async with scene.alone():
                    log.append(f"{name} before")
                    await anyio.lowlevel.checkpoint()
                await scene.meet(event)
                log.append(f"{name} after")

        async def main():
            async with anyio.create_task_group() as tasks:
                for name in "abc":
                    tasks.start_soon(script, name)

        anyio.run(main)
        assert log.count("event") == 1
        assert all("before" in line for line in log[: log.index("event")])
        assert len(log[: log.index("event")]) == 3

    def test_a_script_that_fails_on_its_way_keeps_nobody_waiting(self):
        scene, log = Scene(), []

        async def event():
            log.append("event")

        async def good():
            async with scene.member():
                await scene.meet(event)

        async def bad():
            async with scene.member():
                await anyio.sleep(0.01)
                raise RuntimeError("no answer")

        async def main():
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(good)
                    try:
                        await bad()
                    except RuntimeError:
                        log.append("failed")

        anyio.run(main)
        assert log == ["failed", "event"]
