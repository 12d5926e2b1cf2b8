"""The claim on golden vectors: a broken encoding is red where it breaks, a healthy one nowhere."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fidelity.checks.conformance_wire import Unsupported, Wire
from fidelity.checks.plumbing_encoding import TOPICS, encoding_check, read_vectors
from fidelity.dialects.engine import ENGINE
from fidelity.dialects.openai import OPENAI
from fidelity.errors import ConfigError
from reference import encoding
from reference.encoding_constants import read_constants

ROOT = Path(__file__).parents[2]
DATA = ROOT / "suites" / "data"
CONSTANTS = read_constants(ROOT / "engine/checkpoints/nano/encoding.json")
VECTORS = read_vectors("deepseek_v4_nano", shipped=DATA, beside=ROOT)


@dataclass
class FakeServer:
    """Answers /tokenize, /detokenize and chats; a token is a byte. `broken` changes the request."""

    broken: object = staticmethod(lambda body: body)
    edit: object = staticmethod(lambda path, answer: answer)
    dialect: object = ENGINE
    status: int = 200
    paths: list = field(default_factory=list)

    @property
    def client(self):
        return SimpleNamespace(server=SimpleNamespace(model="m", dialect=self.dialect))

    def render(self, body) -> str:
        options = body.get("chat_template_kwargs", {})
        return encoding.render(
            CONSTANTS,
            body["messages"],
            tools=body.get("tools", ()),
            thinking=options.get("thinking", body.get("default_thinking", False)),
            effort=body.get("reasoning_effort"),
            drop_thinking=body.get("drop_thinking"),
        )

    def answer(self, path, body):
        if path == "//detokenize":
            return {"prompt": bytes(body["tokens"]).decode()}
        if "prompt" in body:
            tokens = list(body["prompt"].encode())
        else:
            tokens = list(self.render(self.broken(body)).encode())
        if path == "//tokenize":
            return {"count": len(tokens), "tokens": tokens}
        return {"prompt_token_ids": tokens}

    async def post(self, path, content, *, label, tokens=0):
        self.paths.append(path)
        answer = self.edit(path, self.answer(path, json.loads(content)))
        body = json.dumps(answer, ensure_ascii=False).encode()
        return Wire(label=label, path=path, status=self.status, body=body)


def problems(server: FakeServer) -> dict[str, list[str]]:
    found = {}
    for topic in TOPICS:
        check = encoding_check(topic, VECTORS[topic])
        found[topic] = check.judge(asyncio.run(check.collect(server)))
    return found


def red(server: FakeServer) -> set[str]:
    return {topic for topic, breaches in problems(server).items() if breaches}


def test_a_healthy_server_passes_and_its_chats_are_looked_at() -> None:
    server = FakeServer()
    assert red(server) == set()
    assert server.paths.count("/chat/completions") == len(TOPICS)


def messages(edit):
    return lambda body: {**body, "messages": edit(body["messages"])}


def last_turn(turns):
    users = [at for at, turn in enumerate(turns) if turn["role"] == "user"]
    system = [turn for turn in turns[: users[-1]] if turn["role"] == "system"]
    return [*system, *turns[users[-1] :]]


def without(role):
    return lambda turns: [turn for turn in turns if turn["role"] != role]


def each(edit):
    return messages(lambda turns: [edit(dict(turn)) for turn in turns])


def stripped(turn):
    if isinstance(turn["content"], str):
        turn["content"] = turn["content"].strip()
    return turn


def arrival_order(turns):
    """Result n of a run answers call n: as a server does that never looks at ids."""
    n, out = 0, []
    for turn in turns:
        n = n + 1 if turn["role"] == "tool" else 0
        ids = [c["id"] for m in turns for c in m.get("tool_calls") or ()]
        out.append({**turn, "tool_call_id": ids[n - 1]} if n else turn)
    return out


def sorted_tools(body):
    return {**body, "tools": json.loads(json.dumps(body.get("tools", []), sort_keys=True))}


BROKEN = {
    "last turn only": (messages(last_turn), {"turns", "reasoning", "results"}),
    "system text lost": (messages(without("system")), {"turns", "reasoning", "tools"}),
    "developer text lost": (messages(without("developer")), {"reasoning"}),
    "thinking by default": (lambda body: {**body, "default_thinking": True}, {"reasoning"}),
    "thinking never": (lambda body: {**body, "chat_template_kwargs": {}}, set(TOPICS) - {"turns"}),
    "past reasoning kept": (lambda body: {**body, "drop_thinking": False}, {"reasoning", "tools"}),
    "texts stripped": (each(stripped), {"turns", "results"}),
    "results as they arrive": (messages(arrival_order), {"results"}),
    "keys of schemas sorted": (sorted_tools, {"reasoning", "tools", "results"}),
    "tools not shown": (lambda body: {**body, "tools": []}, {"reasoning", "tools", "results"}),
    "calls of the past lost": (
        each(lambda turn: {**turn, "tool_calls": None}),
        {"tools", "results"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_encoding_is_red_where_it_breaks(name) -> None:
    broken, topics = BROKEN[name]
    assert red(FakeServer(broken=broken)) == topics


def other_tokens(path, answer):
    """Marks of the prompt of a conversation are spelt out; their text is the same."""
    if path == "//detokenize":
        return {"prompt": answer["prompt"].replace("\0", "")}
    return answer


def test_the_right_text_in_other_tokens_is_red() -> None:
    def edit(path, answer):
        if path == "//tokenize":
            edit.asked += 1
            if edit.asked % 2:  # of a conversation, before the golden text alone
                return {"tokens": [0, *answer["tokens"]]}
        return other_tokens(path, answer)

    edit.asked = 0
    found = problems(FakeServer(edit=edit))
    assert all("in other tokens" in breaches[0] for breaches in found.values())


def test_a_chat_that_reads_something_else_is_red() -> None:
    def edit(path, answer):
        ids = answer.get("prompt_token_ids")
        return answer if ids is None else {"prompt_token_ids": ids[1:]}

    found = problems(FakeServer(edit=edit))
    assert all("a chat reads other tokens" in breaches[0] for breaches in found.values())
    silent = FakeServer(edit=lambda path, answer: {} if path == "/chat/completions" else answer)
    assert red(silent) == set()
    assert red(FakeServer(dialect=replace(ENGINE, ids_field=None))) == set()


def test_a_server_that_cannot_tell_is_no_failure() -> None:
    check = encoding_check("turns", VECTORS["turns"])
    for server in (
        FakeServer(status=400),
        FakeServer(edit=lambda path, answer: {"count": 3} if "tokens" in answer else answer),
    ):
        with pytest.raises(Unsupported):
            asyncio.run(check.collect(server))


@pytest.mark.parametrize("topic", TOPICS)
def test_each_damage_is_found_in_every_topic(topic) -> None:
    check = encoding_check(topic, VECTORS[topic])
    wires = asyncio.run(check.collect(FakeServer()))
    assert len(check.damages) == 3
    for damage in check.damages:
        assert check.judge(damage.apply(wires)), damage.what


def test_a_breach_names_the_place() -> None:
    breaches = problems(FakeServer(broken=BROKEN["thinking by default"][0]))["reasoning"]
    assert len(breaches) == 1
    assert "as the server does by itself: from character" in breaches[0]
    assert "think>" in breaches[0]


def test_vectors_are_found_by_name_or_path_and_refused_in_words(tmp_path) -> None:
    assert {topic for topic in VECTORS if VECTORS[topic]} == set(TOPICS)
    file = "suites/data/encoding_deepseek_v4_nano.json"
    assert read_vectors(file, shipped=tmp_path, beside=ROOT) == VECTORS
    with pytest.raises(ConfigError, match=r"'llama' has no golden vectors; .* deepseek_v4_nano"):
        read_vectors("llama", shipped=DATA, beside=ROOT)
    (tmp_path / "bad.json").write_text('{"vectors": [{"topic": "turns", "text": 1}]}')
    for name in ("bad.json", "none.json"):
        with pytest.raises(ConfigError, match=f"{name} holds no golden vectors"):
            read_vectors(name, shipped=DATA, beside=tmp_path)


def test_a_dialect_without_a_tokenizer_is_asked_nothing() -> None:
    assert encoding_check("turns", VECTORS["turns"]).needs == ("tokenize", "detokenize")
    assert OPENAI.tokenize_path is None
