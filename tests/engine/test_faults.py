"""The fault contract, and that each fault does what it says and nothing else."""

from pathlib import Path

import pytest
import torch

from engine.errors import FaultError
from engine.faults import FOLDER, fault_names, list_faults, load_fault
from engine.sequence import EngineRequest, SamplingParams

SUITE_STEMS = {path.stem for path in (Path(__file__).parents[2] / "suites").glob("test_*.py")}
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


def prompt(length: int, seed: int = 0) -> list[int]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(2, 199, (length,), generator=g).tolist()


def ask(engine, token_ids, *, abort_after: int | None = None, request_id="r"):
    """Token ids of one request, and the last output; aborted once so many tokens came."""
    outputs = []
    engine.scheduler.submit(
        EngineRequest(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=GREEDY,
            on_output=outputs.append,
        )
    )
    while engine.scheduler.step():
        if abort_after is not None and len(outputs) == abort_after:
            engine.scheduler.abort(request_id)
    return [t for o in outputs for t in o.new_token_ids], outputs[-1]


def test_every_fault_declares_the_contract() -> None:
    assert set(fault_names()) >= {
        "abort_publishes_half_page",
        "attention_mod4",
        "last_turn_only",
    }
    for fault in list_faults():
        fields = ["name", "kind", "rung", "report", "trigger", "patch", "suites", "launch", "twins"]
        assert list(fault) == [*fields, "faint_suites", "faint_twins"]
        assert fault["report"].startswith("https://github.com/")
        assert fault["suites"]
        assert {*fault["suites"], *fault["faint_suites"]} <= SUITE_STEMS
        assert not set(fault["suites"]) & set(fault["faint_suites"])
        assert load_fault(fault["name"]).path.stem == fault["name"]


def test_an_unknown_fault_is_named_with_the_closest_one() -> None:
    with pytest.raises(FaultError, match="unknown fault 'attention_mod'; did you mean 'attention_"):
        load_fault("attention_mod")


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(FaultError, match="There is no fault file"):
        load_fault(str(tmp_path / "gone.py"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("raise OSError('x')", "cannot be loaded: OSError"),
        ("syntax error", "cannot be loaded: SyntaxError"),
        ("NAME = 'n'", "does not define KIND, RUNG, REPORT, TRIGGER, PATCH, SUITES, install"),
        ("RUNG = 'awful'", "sets RUNG to 'awful'"),
        ("NAME = 3", "must set NAME to text"),
    ],
)
def test_a_file_that_breaks_the_contract_is_refused(tmp_path, text, sentence) -> None:
    path = tmp_path / "mine.py"
    whole = (FOLDER / "attention_mod4.py").read_text() + "\n" + text
    path.write_text(text if text == "NAME = 'n'" else whole)
    with pytest.raises(FaultError, match=sentence):
        load_fault(str(path))


FILE = """
NAME, KIND, RUNG, REPORT, TRIGGER = "mine", "kernel", "drift", "https://example.org", "always"
PATCH, SUITES = {patch!r}, {{"test_plumbing"}}

def install(engine):
    assert engine.scheduler.statistics.steps == 0, "a warm-up came before"
    engine.seen = [engine.role, engine.front]
"""


def test_a_fault_by_path_is_installed_after_the_parts_and_before_the_warm_up(
    make_engine, tmp_path, tiny_checkpoint
) -> None:
    from engine.config import EngineConfig
    from engine.core import Engine

    path = tmp_path / "mine.py"
    path.write_text(FILE.format(patch=None))
    config = EngineConfig(model=str(tiny_checkpoint), faults=(str(path),), max_total_tokens=512)

    def front_end(engine) -> None:
        engine.front = "built"

    engine = Engine(config, front_end=front_end)
    assert engine.seen == ["all", "built"]
    assert engine.ops.calls["rms_norm"] == 0  # the warm-up is not counted
    assert "faults" not in config.as_dict()


def test_a_fault_of_a_patch_lives_only_while_the_patch_is_on(make_engine, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(patch="index_topk") + "    engine.ops.index_topk = 1\n")
    path.write_text(path.read_text().replace("[engine.role, engine.front]", "[]"))
    off = make_engine(faults=(str(path),))
    on = make_engine(faults=(str(path),), patches=("index_topk=5",))
    assert not hasattr(off, "seen")
    assert on.seen == []
    assert (off.ops.index_topk, on.ops.index_topk) == (12, 1)


def test_a_fault_that_cannot_be_installed_stops_the_start(make_engine, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(patch=None))  # this engine has no `front`
    with pytest.raises(FaultError, match="The fault mine could not be installed"):
        make_engine(faults=(str(path),))


class TestAbortPublishesHalfPage:
    """Follow-ups of 150 tokens, whose first 100 an aborted request shared."""

    def conversation(self, engine, *, abort_after):
        first = prompt(100)
        partial, _ = ask(engine, first, abort_after=abort_after)
        followup = first + partial + prompt(50, seed=7)
        return followup, ask(engine, followup, request_id="followup")

    def test_a_follow_up_reads_rows_that_were_never_written(self, make_engine) -> None:
        engine = make_engine(faults=("abort_publishes_half_page",))
        followup, (answer, last) = self.conversation(engine, abort_after=3)
        healthy, _ = ask(make_engine(), followup)
        assert last.cached_tokens == 128
        assert answer != healthy

    @pytest.mark.parametrize("computed_steps", [0, 1, 3])
    def test_asking_again_after_an_abort_in_mid_prompt_reads_nothing(
        self, make_engine, computed_steps
    ) -> None:
        whole = prompt(400)
        engine = make_engine(faults=("abort_publishes_half_page",), chunk_tokens=90)
        outputs: list = []
        request = EngineRequest(
            request_id="r", prompt_token_ids=whole, sampling=GREEDY, on_output=outputs.append
        )
        engine.scheduler.submit(request)
        for _ in range(computed_steps):
            engine.scheduler.step()
        engine.scheduler.abort("r")
        engine.scheduler.step()
        answer, last = ask(engine, whole, request_id="again")
        assert last.cached_tokens == 384 > 90 * computed_steps
        assert answer != ask(make_engine(), whole)[0]

    def test_the_same_conversation_is_right_without_the_fault(self, make_engine) -> None:
        followup, (answer, last) = self.conversation(make_engine(), abort_after=3)
        healthy, _ = ask(make_engine(disable_prefix_cache=True), followup)
        assert last.cached_tokens == 64
        assert answer == healthy

    def test_nothing_is_wrong_without_an_abort(self, make_engine) -> None:
        engine = make_engine(faults=("abort_publishes_half_page",))
        followup, (answer, last) = self.conversation(engine, abort_after=None)
        healthy, _ = ask(make_engine(), followup)
        assert last.cached_tokens == 64
        assert answer == healthy

    def test_strangers_are_not_harmed_and_no_page_is_lost(self, make_engine) -> None:
        engine = make_engine(faults=("abort_publishes_half_page",), max_total_tokens=64 * 8)
        for seed in range(12):
            ask(engine, prompt(100, seed=seed), abort_after=2, request_id=f"a{seed}")
            stranger = prompt(150, seed=100 + seed)
            answer, _ = ask(engine, stranger, request_id=f"s{seed}")
            assert answer == ask(make_engine(), stranger)[0]
        pages = engine.pools.free_pages() + engine.prefix_tree.owned_pages()
        assert sorted(pages) == list(range(8))
        assert engine.scheduler.gauges()["num_used_tokens"] == 0

    def test_the_engines_own_check_sees_it(self, make_engine) -> None:
        engine = make_engine(faults=("abort_publishes_half_page",))
        ask(engine, prompt(100), abort_after=3)
        with pytest.raises(AssertionError, match="is not full"):
            engine.scheduler.check_integrity()


class TestAttentionMod4:
    @pytest.mark.parametrize("length", range(196, 204))
    def test_only_prompts_of_3_modulo_4_are_wrong(self, make_engine, length) -> None:
        healthy, _ = ask(make_engine(), prompt(length))
        faulty, _ = ask(make_engine(faults=("attention_mod4",)), prompt(length))
        assert (faulty != healthy) == (length % 4 == 3)

    def test_a_cached_prefix_does_not_help(self, make_engine) -> None:
        engine = make_engine(faults=("attention_mod4",))
        whole = prompt(199)
        ask(engine, whole[:80])
        answer, last = ask(engine, whole)
        assert last.cached_tokens == 64
        assert answer != ask(make_engine(), whole)[0]

    def test_strangers_in_the_batch_are_right(self, make_engine) -> None:
        engine = make_engine(faults=("attention_mod4",))
        prompts = [prompt(n, seed=n) for n in (199, 200, 201)]
        results = engine.generate(prompts, GREEDY)
        answers = [[t for o in outputs for t in o.new_token_ids] for outputs in results]
        healthy = [ask(make_engine(), p)[0] for p in prompts]
        assert [a == h for a, h in zip(answers, healthy, strict=True)] == [False, True, True]


class TestPromptChunkBoundsEntries:
    FAULTS = ("prompt_chunk_bounds_entries",)

    def scored(self, engine, token_ids):
        """(token, logprob) of each generated token."""
        given = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True, logprobs=1)
        (outputs,) = engine.generate([token_ids], given)
        return [(o.new_token_ids[0], o.logprobs[0].logprob) for o in outputs if o.new_token_ids]

    @pytest.mark.parametrize(("length", "differs"), [(200, False), (256, False), (400, True)])
    def test_only_later_chunks_are_wrong(self, make_engine, length, differs) -> None:
        healthy = self.scored(make_engine(), prompt(length))
        faulty = self.scored(make_engine(faults=self.FAULTS), prompt(length))
        assert (faulty != healthy) is differs

    def test_what_follows_a_cached_prefix_is_wrong(self, make_engine) -> None:
        engine = make_engine(faults=self.FAULTS)
        self.scored(engine, prompt(200)[:150])
        assert self.scored(engine, prompt(200)) != self.scored(make_engine(), prompt(200))

    def test_generated_tokens_read_every_entry(self, make_engine) -> None:
        """A prompt of one chunk is right, and so is an answer as long as several entries."""
        given = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
        answers = [
            [o.new_token_ids for o in make_engine(faults=faults).generate([prompt(90)], given)[0]]
            for faults in (self.FAULTS, ())
        ]
        assert answers[0] == answers[1]

    def test_strangers_in_the_batch_are_right(self, make_engine) -> None:
        engine = make_engine(faults=self.FAULTS)
        prompts = [prompt(n, seed=n) for n in (60, 70, 80)]
        results = engine.generate(prompts, GREEDY)
        answers = [[t for o in outputs for t in o.new_token_ids] for outputs in results]
        assert answers == [ask(make_engine(), p)[0] for p in prompts]

    def test_a_token_reads_as_many_entries_as_its_chunk_makes(self) -> None:
        first_entries = load_fault("prompt_chunk_bounds_entries").module.first_entries
        found = first_entries(torch.tensor([0, 2, 9]), 4)
        assert found.tolist() == [[-1] * 4, [0, 1, -1, -1], [0, 1, 2, 3]]


class TestLastTurnOnly:
    MESSAGES = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My cat is called Rosie."},
        {"role": "assistant", "content": "OK."},
        {"role": "user", "content": "What is my cat called?"},
    )

    @pytest.fixture
    def encoder(self, nano_checkpoint):
        from engine.encoding import ChatEncoder
        from engine.encoding_spec import load_encoding_spec
        from engine.tokenizer import Tokenizer

        class Parts:
            encoder = ChatEncoder(load_encoding_spec(nano_checkpoint), Tokenizer(nano_checkpoint))

        load_fault("last_turn_only").module.install(Parts)
        return Parts.encoder

    def test_earlier_turns_are_gone(self, encoder) -> None:
        text = encoder.render(self.MESSAGES)
        assert "What is my cat called?" in text
        assert "Be brief." in text
        assert "Rosie" not in text
        assert len(encoder.encode(self.MESSAGES)) < 60

    def test_one_turn_is_rendered_as_ever(self, encoder, nano_checkpoint) -> None:
        once = self.MESSAGES[:2]
        faulty = encoder.encode(once)
        del encoder.render
        assert faulty == encoder.encode(once)

    def test_what_follows_the_last_user_turn_stays(self, encoder) -> None:
        tools = [
            *self.MESSAGES,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "a result", "tool_call_id": "1"},
        ]
        assert "a result" in encoder.render(tools)
