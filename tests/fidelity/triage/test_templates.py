"""Templates of healthy servers lose nothing, and one that loses a fact is told from them."""

import json

import pytest

from fidelity.records import Finding
from tests.fidelity.triage.chats import ASKED, assistant, system, user
from tests.fidelity.triage.forgetful import Server, place_of, triaged

DEFAULT_SYSTEM = "You are a helpful assistant of " + "many " * 20 + "words."
DENSE = "=" * 400
THOUGHT = "<think>" + "they say so and I shall keep it in mind " * 12 + "</think>"


class Templated(Server):
    """Forgets as `Server` does, behind a template as many models have it: nothing is lost there.

    It writes its own system message where none is given, and drops earlier reasoning.
    """

    def rendered(self, messages):
        given = [] if messages[0]["role"] == "system" else [system(DEFAULT_SYSTEM)]
        if self.knob("drops") == "answers":
            messages = [m for m in messages if m["role"] != "assistant"]
        if self.knob("drops") == "system":
            given, messages = [], [m for m in messages if m["role"] != "system"]
        return given + [
            m | {"content": m["content"].rpartition("</think>")[2]}
            if m["role"] == "assistant"
            else m
            for m in messages
        ]

    def _templated(self, request):
        body = request.json
        messages = self.rendered(body["messages"])
        request.body = json.dumps(body | {"messages": messages}).encode()

    async def chat(self, request, connection):
        self._templated(request)
        await super().chat(request, connection)

    async def more(self, request, connection):
        if request.path == "/tokenize":
            if not self.knob("tokenizer", True):
                return False
            if "messages" in request.json:
                self._templated(request)
        return await super().more(request, connection)


TEMPLATED_CHATS = {
    "default_system": [system("Box 3 holds 4444."), user("Hello."), assistant("Hi."), ASKED],
    "earlier_reasoning": [
        user("Guess what it holds."),
        assistant(f"{THOUGHT}Box 3 holds 4444."),
        ASKED,
    ],
    "dense_text": [user(f"Box 3 holds 4444 and {DENSE}"), assistant("OK."), ASKED],
}


def rendering(records):
    return next(r for r in records if isinstance(r, Finding) and r.claim == "triage/rendering")


@pytest.mark.parametrize("tokenizer", [True, False])
@pytest.mark.parametrize("chat", list(TEMPLATED_CHATS))
def test_a_healthy_template_loses_nothing_in_rendering(tmp_path, chat, tokenizer):
    with Templated(sees="last", tokenizer=tokenizer) as server:
        body = {"messages": TEMPLATED_CHATS[chat], "max_tokens": 32}
        _, records, _ = triaged(tmp_path, server, "--expect=4444", body=body)
    finding = rendering(records)
    assert finding.outcome != "fail", finding.reason
    assert records[-1].blame != "deployment"
    if chat != "dense_text" or tokenizer:
        assert place_of(records) == "lost in attention", finding.reason


@pytest.mark.parametrize("tokenizer", [True, False])
@pytest.mark.parametrize(
    ("drops", "chat"), [("answers", "earlier_reasoning"), ("system", "default_system")]
)
def test_a_template_that_loses_the_fact_is_lost_in_rendering(tmp_path, drops, chat, tokenizer):
    with Templated(sees="last", drops=drops, tokenizer=tokenizer) as server:
        body = {"messages": TEMPLATED_CHATS[chat], "max_tokens": 32}
        code, records, _ = triaged(tmp_path, server, "--expect=4444", body=body)
    assert (code, place_of(records)) == (1, "lost in rendering"), rendering(records).reason
    assert records[-1].blame == "deployment"


def test_a_fact_that_stands_in_earlier_reasoning_alone_blames_no_deployment(tmp_path):
    chat = [user("Guess."), assistant("<think>Box 3 holds 4444.</think>I know it now."), ASKED]
    with Templated(sees="last") as server:
        body = {"messages": chat, "max_tokens": 32}
        code, records, _ = triaged(tmp_path, server, "--expect=4444", body=body)
    assert code == 1
    assert records[-1].blame == "unknown"
    assert "stands only in earlier reasoning" in rendering(records).reason
