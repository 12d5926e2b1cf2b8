"""Games, scripts and their judge: chosen, worded, shortened, compared, written down."""

import json
from types import SimpleNamespace

import anyio
import msgspec
import pytest

from fidelity.endpoint.replies import Reply, TokenLogprob, TopToken
from fidelity.errors import CapSpent, ConfigError, TrafficRefused
from fidelity.fuzz.abilities import can_of, declared_dtype, flood_lines, pool_tokens
from fidelity.fuzz.claiming import findings_of
from fidelity.fuzz.comparing import compare
from fidelity.fuzz.hunt import AGAIN, SHRINK, Hunt, Hunted, Limits
from fidelity.fuzz.isolation import Alone, Way, alone, way_of
from fidelity.fuzz.moves import (
    Kind,
    Move,
    Rules,
    Style,
    digest,
    requests_of,
    sound,
    traffic_of,
)
from fidelity.fuzz.phrasing import script_of
from fidelity.fuzz.playing import Can, Played, Player
from fidelity.fuzz.script import Abort, Chat, Flood, Flush, Script, read_script, written
from fidelity.fuzz.shrinking import smaller
from fidelity.fuzz.trying import script_probe
from fidelity.fuzz.writing import in_words, write_files
from fidelity.records import Trial
from fidelity.verdicts.decisions import Claim, all_true_finding
from fidelity.words import Ladder, Outcome, Score, Traffic

GAME = (
    Move(kind=Kind.OPEN, facts=4, which=1),
    Move(kind=Kind.ABORT, talk=1, facts=2, after=1),
    Move(kind=Kind.FOLLOW_UP, talk=1, facts=2),
    Move(kind=Kind.FORK, talk=2, of=0, turns=1, facts=0),
    Move(kind=Kind.FLUSH),
    Move(kind=Kind.RETRY, talk=0),
    Move(kind=Kind.FOLLOW_UP, talk=0, facts=0, which=3, beside=(Style.WARM, Style.GREEDY)),
)


# ---- moves


def test_a_game_that_is_sound_is_left_as_it_is():
    assert sound(GAME) == GAME
    assert requests_of(GAME) == 9
    assert traffic_of(GAME) is Traffic.DISRUPTIVE
    assert digest(GAME) == digest(sound(GAME)) != digest(GAME[:-1])


def test_what_a_missing_move_leaves_dangling_is_mended():
    without_opening = sound(GAME[1:])
    assert [m.kind for m in without_opening] == [
        Kind.ABORT,
        Kind.FOLLOW_UP,
        Kind.OPEN,  # the fork of a conversation that never was
        Kind.FLUSH,
        Kind.OPEN,  # the retry is gone, and the follow-up begins its conversation
    ]
    assert [m.talk for m in without_opening if m.talks] == [0, 0, 1, 2]
    assert sound((Move(kind=Kind.RETRY, talk=3),)) == ()
    kept = Move(kind=Kind.ABORT, facts=2, keep=True)
    assert sound((kept, Move(kind=Kind.RETRY))) == (kept,)


def test_smaller_games_are_sound_smaller_and_never_the_same():
    found = list(smaller(GAME))
    assert len(found) == len(set(found))
    assert GAME not in found
    for game in found:
        assert sound(game) == game
        script_of(game, seed="s")  # every one of them can be put in words


# ---- words


def test_one_seed_gives_one_script_and_two_seeds_share_no_first_line():
    one, same, other = (script_of(GAME, seed=seed) for seed in ("a", "a", "b"))
    assert one == same
    assert one.steps[0].given[0]["content"].split("\n")[1].startswith("Log book")
    assert one.steps[0].given[0]["content"] != other.steps[0].given[0]["content"]
    assert not set(one.facts) & set(other.facts)


def test_an_aborted_message_is_said_again_word_for_word():
    script = script_of(GAME, seed="a")
    aborted, after = script.steps[1], script.steps[2]
    assert isinstance(aborted, Abort)
    assert isinstance(after, Chat)
    assert after.given[: len(aborted.given)] == aborted.given
    assert len(after.given) > len(aborted.given)


def test_questions_ask_for_what_was_told_and_the_other_facts_are_rivals():
    script = script_of(GAME, seed="a")
    first = script.steps[0]
    assert script.facts[first.expect] == "c1"
    assert len(first.others) == 3
    assert first.expect not in first.others
    retry = script.steps[5]
    assert retry.retry
    assert retry.given == first.given


def test_a_script_survives_its_file(tmp_path):
    script = script_of(GAME, seed="a", about='a """ sentence \\')
    path = write_files(tmp_path, script, name="0a1b2c3d")
    assert read_script(path) == script
    assert script.requests == requests_of(GAME)
    assert script.traffic is Traffic.DISRUPTIVE
    test = tmp_path / "test_stateful_0a1b2c3d.py"
    compile(test.read_text(), str(test), "exec")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no script"),
        ("[]", "no script"),
        ('{"format": "fidelity-script/9"}', "has the format"),
        ('{"format": "fidelity-script/1", "step": []}', "no script"),
        ('{"steps": [{"op": "burn"}]}', "no script"),
        ('{"steps": [{"op": "chat", "conversation": "a", "say": "b", "of": "c"}]}', "no conver"),
    ],
)
def test_what_is_no_script_is_refused_in_words(tmp_path, text, words):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_script(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_script(tmp_path / "absent.json")


def test_words_name_every_move():
    text = in_words(GAME)
    assert text.startswith("open c1 with 4 facts -> abort c2 with 2 facts after 1 deltas")
    assert "fork c3 of c1" in text
    assert "beside 2 strangers" in text


# ---- playing


class FakeAsk:
    """Keeps what was sent, and answers by a counter."""

    def __init__(self):
        self.sent = []
        self.flushes = 0
        self.client = SimpleNamespace(flush_cache=self.flush)

    async def flush(self):
        self.flushes += 1

    async def chat(self, messages, *, label="", **options):
        self.sent.append((label, [m["content"] for m in messages], options))
        aborted = options.get("abort_after_tokens") is not None
        return reply(f"answer {len(self.sent)}", aborted=aborted, cached_tokens=0)


def reply(text="", **fields):
    return Reply(request_id="r", path="/chat/completions", text=text, **fields)


def play(script, can=None):
    ask = FakeAsk()
    played = anyio.run(lambda: Player(ask, can or Can()).play(script))
    return ask, played


def chat(say, conversation="c1", **fields):
    return Chat(conversation=conversation, say=say, **fields)


def test_conversations_build_on_what_was_really_answered():
    script = Script(
        steps=(
            chat("one"),
            chat("two"),
            chat("fork", "c2", of="c1", turns=1),
            chat("two", retry=True),
            Flush(),
            Flood(say="long"),
        )
    )
    ask, played = play(script)
    contents = [content for _, content, _ in ask.sent]
    assert contents == [
        ["one"],
        ["one", "answer 1", "two"],
        ["one", "answer 1", "fork"],
        ["one", "answer 1", "two"],
        ["long"],
    ]
    assert ask.flushes == 1
    labels = ["1. chat c1", "2. chat c1", "3. fork c2", "4. retry c1", "6. flood"]
    assert [one.label for one in played] == labels
    assert ask.sent[-1][2]["traffic"] is Traffic.DISRUPTIVE


def test_an_aborted_turn_is_kept_only_when_the_script_says_so():
    steps = (
        Abort(conversation="c1", say="left", after_deltas=4),
        chat("next"),
        Abort(conversation="c1", say="kept", keep_partial=True),
        chat("last"),
    )
    ask, played = play(Script(steps=steps))
    assert ask.sent[1][1] == ["next"]
    assert ask.sent[3][1] == ["next", "answer 2", "kept", "answer 3", "last"]
    assert len(played) == 2
    assert ask.sent[0][2]["abort_after_tokens"] == 4
    assert ask.sent[0][2]["traffic"] is Traffic.PASSIVE  # closing is what any client may do


def test_an_abort_by_call_falls_back_to_closing_in_its_label_too():
    step = Abort(conversation="c1", say="left", by_call=True)
    ask, _ = play(Script(steps=(step,)), Can(call=True))
    assert ask.sent[0][2]["abort_by_call"]
    assert ask.sent[0][0].endswith("by call")
    ask, _ = play(Script(steps=(step,)), Can())
    assert not ask.sent[0][2]["abort_by_call"]
    assert ask.sent[0][0].endswith("by closing")


# ---- isolation


def test_the_best_way_to_isolate_keeps_every_token():
    assert way_of(Can(flush=True, given_text=True)) is Way.FLUSH
    assert way_of(Can(given_text=True, cache_salt="cache_salt")) is Way.GIVEN_TEXT
    assert way_of(Can(cache_salt="cache_salt")) is Way.CACHE_SALT
    assert way_of(Can()) is Way.OTHER_LINE


def isolated(can, *, cached=0, altered=False, head=None):
    ask = FakeAsk()
    message = {"role": "user", "content": "the code is 12345"}
    one = Played(
        label="1. chat c1", chat=chat("q", expect="12345"), messages=(message,), reply=reply()
    )

    async def ask_alone():
        answered = ask.chat

        async def chat_cached(messages, **options):
            told = head if "share" in options["label"] and head is not None else cached
            return msgspec_replace(await answered(messages, **options), cached_tokens=told)

        ask.chat = chat_cached
        return await alone(ask, one, can, seed="s", altered=altered)

    return ask, anyio.run(ask_alone)


def msgspec_replace(made, **fields):
    import dataclasses

    return dataclasses.replace(made, **fields)


def test_isolation_is_proven_by_usage_or_doubted():
    assert isolated(Can(flush=True))[1].trouble == ""
    assert isolated(Can(flush=True))[0].flushes == 1
    assert "came from a cache" in isolated(Can(flush=True), cached=64)[1].trouble
    salted = Can(cache_salt="cache_salt")
    assert "does not tell" in isolated(salted, cached=None)[1].trouble
    assert isolated(msgspec_replace(salted, tells_cached=True), cached=None)[1].trouble == ""
    assert "came from a cache" in isolated(salted, cached=64)[1].trouble
    assert isolated(Can(), cached=None)[1].trouble == ""
    ask, found = isolated(Can(), cached=8)
    assert not found.same_tokens
    assert found.trouble == ""
    assert ask.sent[0][1][0].startswith("Shelf ")
    ask, _ = isolated(Can(cache_salt="cache_salt"))
    assert ask.sent[0][2]["extra"] == {"cache_salt": "alone s"}


def test_given_text_reads_no_cache_also_where_usage_does_not_tell():
    assert isolated(Can(given_text=True), cached=None)[1].trouble == ""


@pytest.mark.parametrize("error", [TrafficRefused, CapSpent])
def test_a_prompt_too_long_for_its_logprobs_gets_another_line(error):
    class Short(FakeAsk):
        async def chat(self, messages, **options):
            if options.get("prompt_logprobs") is not None:
                raise error("too long")
            return await super().chat(messages, **options)

    played = Played(
        label="1. chat c1",
        chat=chat("q"),
        messages=({"role": "user", "content": "q"},),
        reply=reply(),
    )
    ask = Short()

    async def ask_alone():
        return await alone(ask, played, Can(given_text=True), seed="s")

    if error is CapSpent:
        with pytest.raises(CapSpent):
            anyio.run(ask_alone)
        return
    assert not anyio.run(ask_alone).same_tokens
    assert ask.sent[0][1][0].startswith("Shelf ")


def test_what_every_prompt_shares_is_measured_and_no_trouble():
    ask, found = isolated(Can(), cached=120)  # a system prompt of the template, say
    assert found.trouble == ""
    assert len(ask.sent) == 2
    assert "12345" not in ask.sent[1][1][0]
    assert ask.sent[1][1][0].partition(chr(10))[0] != ask.sent[0][1][0].partition(chr(10))[0]
    assert "came from a cache" in isolated(Can(), cached=120, head=64)[1].trouble


def test_the_damage_of_the_control_alters_every_digit_of_the_fact_and_the_question():
    ask, _ = isolated(Can(flush=True), altered=True)
    assert ask.sent[0][1] == ["the code is 45678 Say it once."]


# ---- comparing

SURE, RIVAL = -0.001, -7.0


def answer(tokens, rival=RIVAL, sure=SURE):
    logprobs = tuple(
        TokenLogprob(
            token=t,
            logprob=sure,
            top=(
                TopToken(token=t, logprob=sure),
                TopToken(token=f"not {t}", logprob=rival),
            ),
        )
        for t in tokens
    )
    return reply("".join(tokens), logprobs=logprobs)


def compared(here, there, *, dtype="float32", facts=None, **fields):
    played = Played(
        label="1. chat c1",
        chat=chat("q", **({"expect": "12345"} | fields)),
        messages=({"role": "user", "content": "12345"},),
        reply=here,
    )
    beside = Alone(reply=there, same_tokens=True)
    return compare(played, beside, facts=facts or {}, dtype=dtype)


def test_equal_answers_are_exact_and_small_differences_are_rounding():
    assert compared(answer("12345"), answer("12345")).rung is Ladder.EXACT
    found = compared(answer("12345"), answer("12345", rival=RIVAL + 1e-4))
    assert (found.ok, found.rung) == (True, Ladder.ROUNDING)


def test_a_rival_that_moved_beyond_rounding_is_a_drift_though_the_text_is_equal():
    found = compared(answer("12345"), answer("12345", rival=RIVAL + 0.1))
    assert (found.ok, found.rung) == (False, Ladder.DRIFT)
    assert "'12345' both times" in found.sentence
    # in bfloat16 the same difference is rounding
    assert compared(answer("12345"), answer("12345", rival=RIVAL + 0.1), dtype=None).ok


def test_a_tail_that_takes_one_step_of_a_16_bit_logit_is_no_finding():
    here, there = answer("12345", rival=-15.0), answer("12345", rival=-15.625)
    found = compared(here, there, dtype="bfloat16")
    assert (found.ok, found.size) == (True, 0.0)
    assert compared(here, there, dtype="float16").ok
    assert not compared(here, there, dtype="float32").ok
    # a rival that comes up out of the tail, or a chosen token that moved, is told as before
    assert not compared(here, answer("12345", rival=-6.0), dtype="bfloat16").ok
    moved = answer("12345", rival=-15.625, sure=-1.2)
    assert compared(here, moved, dtype="bfloat16").size == pytest.approx(1.199)


def test_another_answer_is_structural_where_the_fact_was_lost():
    found = compared(answer("99999"), answer("12345"))
    assert (found.ok, found.rung, found.score) == (False, Ladder.STRUCTURAL, Score.WRONG)
    assert "'99999', alone '12345'" in found.sentence


def test_texts_that_part_at_a_tie_are_no_finding():
    def tied(first):
        other = "2" if first == "1" else "1"
        top = (
            TopToken(token=first, logprob=-0.6931),
            TopToken(token=other, logprob=-0.6932),
        )
        return reply(first, logprobs=(TokenLogprob(token=first, logprob=-0.6931, top=top),))

    assert compared(tied("1"), tied("2"), expect="").ok


def test_a_foreign_fact_is_a_leak_whatever_was_sampled():
    found = compared(answer("67890"), answer("12345"), facts={"67890": "c9"}, temperature=0.8)
    assert (found.ok, found.rung) == (False, Ladder.STRUCTURAL)
    assert "which only c9 was told" in found.sentence
    assert compared(answer("12345"), answer("99999"), temperature=0.8).ok


def test_without_numbers_only_a_lost_fact_is_a_finding():
    assert compared(reply("The code is 12345."), reply("12345")).ok
    assert not compared(reply("I do not know."), reply("12345")).ok
    assert compared(reply("I do not know."), reply("nor do I")).ok


def test_an_isolated_answer_out_of_a_cache_says_nothing():
    played = Played(label="l", chat=chat("q"), messages=(), reply=answer("12345"))
    beside = Alone(reply=answer("12345"), same_tokens=True, trouble="64 tokens came from a cache")
    found = compare(played, beside, facts={}, dtype="float32")
    assert (found.ok, found.sentence) == (None, "64 tokens came from a cache")


# ---- what a deployment allows


def test_floods_fill_the_pool_that_the_server_tells():
    assert pool_tokens({"internal_states": [{"max_total_num_tokens": 4096}]}) == 4096
    assert pool_tokens({"max_total_tokens": 8192}) == 8192
    assert pool_tokens({"max_total_tokens": True, "internal_states": "x"}) is None
    half, most = flood_lines(4096)
    assert half * 26 <= 2048
    assert 0.8 * 4096 < most * 26 <= 4096
    assert flood_lines(1_000_000) == ()
    assert len(flood_lines(None)) == 1


def test_weights_of_few_bits_do_not_loosen_the_arms_of_one_server():
    deployment = SimpleNamespace(
        capabilities=SimpleNamespace(get=lambda name: None, dialect="vllm"), server_info={}
    )

    def dtype(declared):
        return can_of(deployment, SimpleNamespace(allow=(), dtype=declared)).dtype

    assert [dtype(name) for name in ("int4", "nvfp4", "fp8")] == ["bfloat16"] * 3
    assert [dtype(name) for name in ("float16", "float32")] == ["float16", "float32"]


def test_a_dtype_that_nobody_knows_is_none():
    assert declared_dtype({"dtype": "float32"}) == "float32"
    assert declared_dtype({"dtype": "auto"}) is None
    assert declared_dtype({"dtype": 7}) is None


# ---- hunting


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


def test_a_script_file_is_json_that_people_can_read():
    text = written(script_of(GAME, seed="a")).decode()
    assert json.loads(text)["steps"][0]["op"] == "chat"
    assert len(text.splitlines()) > 20


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
        (Way.FLUSH, Ladder.DRIFT, (False, True), Outcome.INCONCLUSIVE),
        (Way.GIVEN_TEXT, Ladder.SELECTION, (True, True), Outcome.INCONCLUSIVE),
        (Way.OTHER_LINE, Ladder.STRUCTURAL, (False, False), Outcome.FAIL),
        (Way.OTHER_LINE, Ladder.STRUCTURAL, (False, True), Outcome.INCONCLUSIVE),
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


@pytest.mark.parametrize("altered", [False, True])
def test_the_control_is_seen_also_where_only_answers_can_be_compared(altered):
    class Reader(FakeAsk):
        """Answers by the last code that it was told, without logprobs."""

        async def chat(self, messages, *, label="", **options):
            await super().chat(messages, label=label, **options)
            told = " ".join(m["content"] for m in messages).split()
            return reply(next(w for w in reversed(told) if w.strip(".").isdecimal()))

    script = Script(steps=(chat("My code is 12345 . What is it?", expect="12345"),))
    probe = script_probe(script, Can(), key="k", recipe={}, altered=altered)
    found = anyio.run(probe.script, Reader())
    assert found.ok is not altered
