"""Where a context is lost: attention, rendering, sampling, the prefix cache, or nowhere."""

import json
import subprocess

import pytest
from fake_servers import FakeSGLang, words_of

from fidelity.records import Finding, Trial
from tests.fidelity.triage.chats import ASKED, CHAT, assistant, user
from tests.fidelity.triage.forgetful import Server, place_of, triaged


def test_a_server_that_forgets_is_attention_or_the_model_until_stock_speaks(tmp_path, capsys):
    with Server(sees="last") as server, Server() as healthy:
        code, records, folder = triaged(tmp_path, server, "--expect=4444")
        assert (code, place_of(records)) == (1, "lost in attention")
        assert records[-1].blame == "unknown"
        code, records, _ = triaged(tmp_path, server, "--expect=4444", f"--stock={healthy.base_url}")
        assert (code, records[-1].blame) == (1, "deployment")
        code, records, _ = triaged(tmp_path, server, "--expect=4444", f"--stock={server.base_url}")
        assert (code, place_of(records)) == (1, "model limit")
        code, records, _ = triaged(tmp_path, server, f"--hop={healthy.base_url}")
        assert (place_of(records), records[-1].blame) == ("lost in attention", "deployment")
    page = capsys.readouterr().out
    assert "verdict: lost in attention (blame: unknown)" in page
    smallest = json.loads((folder / "smallest.json").read_text())
    assert [m["content"] for m in smallest["messages"]] == [
        "Box 3 holds 4444.",
        "OK.",
        "What does box 3 hold?",
    ]
    assert smallest["expect"] == ["4444"]


def test_without_an_expectation_a_plain_question_is_held_to_what_the_chat_told(tmp_path, capsys):
    messages = [
        user("My locker code is 4711."),
        {"role": "assistant", "content": "OK."},
        user("What is my locker code?"),
    ]
    with FakeSGLang() as server:
        server.answer = lambda body: ["It", "is", "4712."]
        code, _, _ = triaged(tmp_path, server, body={"messages": messages})
    assert code == 1
    page = capsys.readouterr().out
    assert "expected    the answer holds '4711'" in page
    assert "it was read off the chat" in page


def test_a_hop_that_does_not_answer_is_no_end(tmp_path):
    with Server(sees="last") as server:
        hop = "--hop=http://127.0.0.1:9/v1"
        code, records, _ = triaged(tmp_path, server, "--expect=4444", hop)
    assert code == 1
    said = next(r for r in records if isinstance(r, Finding) and r.claim == "triage/hop").reason
    assert "http://127.0.0.1:9/v1 does not answer" in said


def test_a_healthy_server_is_not_reproduced_with_the_rate_that_would_have_shown(tmp_path, capsys):
    with Server() as server:
        code, records, folder = triaged(tmp_path, server, "--expect=4444", "--repeats=10")
        assert (code, place_of(records)) == (0, "not reproduced")
    assert "greedy 0 of 10 fail; a failure in more than 26% of replays" in capsys.readouterr().out
    assert not (folder / "smallest.json").exists()
    assert (folder / "report.html").exists()


def test_a_turn_that_adds_no_tokens_is_lost_in_rendering(tmp_path):
    with Server(sees="last", renders_last=True) as server:
        code, records, _ = triaged(tmp_path, server)
        assert (code, place_of(records)) == (1, "lost in rendering")
        finding = next(
            r for r in records if isinstance(r, Finding) and r.claim == "triage/rendering"
        )
        assert "adds 0 tokens" in finding.reason


def test_a_denial_is_a_failure_where_nothing_else_is_expected(tmp_path):
    with Server(sees="last") as server:
        code, records, folder = triaged(tmp_path, server)
    assert (code, place_of(records)) == (1, "lost in attention")
    assert (
        sum(
            m["role"] == "user"
            for m in json.loads((folder / "smallest.json").read_text())["messages"]
        )
        == 2
    )
    trials = [r for r in records if isinstance(r, Trial)]
    assert {t.claim for t in trials} >= {"triage/replay", "triage/shrink", "triage/rendering"}


def test_what_fails_only_as_sampled_is_lost_in_sampling(tmp_path):
    with Server(sees="hot") as server:
        body = {"messages": CHAT, "temperature": 0.9}
        code, records, folder = triaged(tmp_path, server, "--expect=4444", body=body)
    assert (code, place_of(records)) == (1, "lost in sampling")
    assert json.loads((folder / "smallest.request.json").read_text())["temperature"] == 0.9


def test_lengths_that_fail_are_found_from_one_that_does_not(tmp_path):
    with Server(sees="odd") as server:
        even = CHAT if len(words_of(CHAT)) % 2 == 0 else [user("hi"), *CHAT]
        code, records, _ = triaged(tmp_path, server, "--expect=4444", body={"messages": even})
    assert (code, place_of(records)) == (1, "lost in attention")
    assert "of 1 modulo 2 tokens" in records[-1].sentence


def test_a_server_without_usage_leaves_the_rendering_open(tmp_path):
    class Silent(FakeSGLang):
        usage = False

        def answer(self, body):
            return ["This is the first message."]

    with Silent() as server:
        body = {"messages": CHAT, "stream": True}
        code, records, _ = triaged(tmp_path, server, body=body)
    assert (code, place_of(records)) == (1, "undecided")


class Stale(FakeSGLang):
    """Answers from a cache that holds somebody else's state, until it is flushed."""

    cached_tokens = True

    def answer(self, body):
        return ["Box 3 holds 4444." if self.flushed else "This is the first message."]


def test_what_a_flush_cures_is_lost_in_the_prefix_cache(tmp_path):
    with Stale() as server:
        code, records, _ = triaged(tmp_path, server, "--expect=4444", "--allow=disruptive")
        assert (code, place_of(records)) == (1, "lost in the prefix cache")
        assert records[-1].blame == "deployment"
        server.flushed = 0
        _, records, _ = triaged(tmp_path, server, "--expect=4444")  # without leave it is not
        assert server.flushed == 0
        assert place_of(records) != "lost in the prefix cache"


def test_what_was_not_reproduced_is_no_certificate(tmp_path):
    with Server() as server:
        code, records, _ = triaged(tmp_path, server, "--expect=4444")
    assert (code, records[-1].exit_code, records[-1].verdict) == (0, 0, "undecided")
    whole = next(r for r in records if isinstance(r, Finding) and r.claim == "triage/conversation")
    assert whole.outcome == "inconclusive"


class Unlucky(Server):
    """Gives a wrong answer to one very prompt: as rounding decides where two answers are close."""

    def answer(self, body):
        said = super().answer(body)
        if len(body["messages"]) == 3 and body["messages"][1]["content"] == "OK.":
            return ["8123"]
        return said


UNLUCKY = [user("Box 3 holds 4444."), assistant("OK."), ASKED]


@pytest.mark.parametrize("option", ["stock", "hop"])
def test_one_prompt_that_fails_here_and_not_elsewhere_convicts_nobody(tmp_path, option):
    with Unlucky() as server, Server() as other:
        words = ["--expect=4444", f"--{option}={other.base_url}"]
        _, records, _ = triaged(tmp_path, server, *words, body={"messages": UNLUCKY})
    finding = next(r for r in records if isinstance(r, Finding) and r.claim == f"triage/{option}")
    assert finding.outcome == "inconclusive", finding.reason
    assert "here 0 of 8 fail, there 0 of 8" in finding.reason
    assert records[-1].blame == "unknown"


class Lossy(FakeSGLang):
    """Loses its answer one way: streamed, or in one piece."""

    def answer(self, body):
        lost = bool(body.get("stream")) is self.knob("loses_streamed", True)
        return ["sorry"] if lost else ["Box 3 holds 4444."]


@pytest.mark.parametrize("given", [{}, {"stream": True}])
def test_what_only_a_stream_loses_is_lost_in_the_stream(tmp_path, given):
    with Lossy() as server:
        body = {"messages": CHAT, **given}
        code, records, folder = triaged(tmp_path, server, "--expect=4444", body=body)
        assert (code, place_of(records)) == (1, "lost in the stream")
        assert records[-1].blame == "deployment"
        sent = subprocess.run(
            ["sh", str(folder / "smallest.sh")], capture_output=True, check=True, timeout=30
        )
        assert b"sorry" in sent.stdout
        assert b"[DONE]" in sent.stdout


def test_what_only_one_piece_loses_is_lost_there(tmp_path):
    with Lossy(loses_streamed=False) as server:
        code, records, folder = triaged(tmp_path, server, "--expect=4444")
    assert (code, place_of(records)) == (1, "lost in the answer in one piece")
    assert not json.loads((folder / "smallest.request.json").read_text())["stream"]


class Choosy(Server):
    """Takes no temperature that is no number, as servers do."""

    async def chat(self, request, connection):
        temperature = request.json.get("temperature")
        if not (isinstance(temperature, int | float) and temperature >= 0):
            await connection.respond(400, {"error": {"message": "temperature: no number"}})
            return
        await super().chat(request, connection)


@pytest.mark.parametrize("temperature", ['"hot"', "NaN"])
def test_parameters_that_the_server_refuses_are_not_called_healthy(tmp_path, temperature):
    body = f'{{"messages": {json.dumps(CHAT)}, "temperature": {temperature}}}'
    with Choosy() as server:
        code, records, _ = triaged(tmp_path, server, "--expect=4444", body=body)
    assert (code, place_of(records)) == (2, "undecided")
    assert "as sampled: no answer could be judged: the server refused it" in records[-1].sentence


def test_the_models_own_weakness_stays_a_suspect(tmp_path, capsys):
    with Server(sees="last") as server, Server() as healthy:
        triaged(tmp_path, server, "--expect=4444")
        assert "the model's own weakness over several turns" in capsys.readouterr().out
        triaged(tmp_path, server, "--expect=4444", f"--stock={healthy.base_url}")
        assert "the model's own weakness" not in capsys.readouterr().out
