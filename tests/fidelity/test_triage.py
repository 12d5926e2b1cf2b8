"""A failing chat is read, shrunk while it keeps failing, and blamed on what the evidence says."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from fake_servers import FakeSGLang, FakeVLLM, words_of

from fidelity.cli import main
from fidelity.errors import ConfigError
from fidelity.records import Finding, Manifest, Trial, Verdict, read_journal
from fidelity.triage.conversation import conversation_of, text_of
from fidelity.triage.desk import Tally, Try
from fidelity.triage.inquiry import tries_for
from fidelity.triage.judge import Judge
from fidelity.triage.lengths import residue_of
from fidelity.triage.pieces import blocks_of, lengthened, salted, simpler
from fidelity.triage.reading import read_conversation
from fidelity.triage.shrink import minimized
from fidelity.triage.topic import fact_of, topic_of

CODES = [f"{number}{number}{number}{number}" for number in range(1, 10)]
CHAT = [
    turn
    for number, code in enumerate(CODES)
    for turn in (
        {"role": "user", "content": f"Box {number} holds {code}."},
        {"role": "assistant", "content": "I have noted that down."},
    )
] + [{"role": "user", "content": "What does box 3 hold?"}]


def _user(text):
    return {"role": "user", "content": text}


def _called(call_id="c1", name="f"):
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "4711"},
    ]


# ---- reading


def _file(tmp_path, content):
    path = tmp_path / "chat.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "is neither a JSON chat with messages nor a request log"),
        ("3", "is neither a JSON chat"),
        ({"model": "x"}, "is neither a JSON chat"),
        ({"messages": []}, "the list of messages is empty"),
        ([], "the list of messages is empty"),
        ({"messages": "hi"}, "no `messages` in it"),
        ({"messages": [{"role": "usr", "content": "x"}]}, "message 1 has role 'usr'; known are"),
        ({"messages": [{"role": "user", "content": 3}]}, "neither text nor parts"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no user message waits"),
        ({"messages": [_user("x"), _called()[1]]}, "answers tool call 'c1', which no message"),
        ({"messages": [_user("x")], "tools": 3}, "tools is no list"),
        ({"messages": [_user("x")], "expect": [3]}, "expect is neither a text nor a list"),
    ],
)
def test_bad_input_is_one_clear_sentence(tmp_path, content, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read_conversation(_file(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_clear_sentence(tmp_path, capsys):
    assert main(["triage", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_an_answer_behind_the_question_is_what_was_seen_and_is_not_sent(tmp_path):
    messages = [_user("a"), *_called(), {"role": "assistant", "content": "It is 4712."}]
    body = {"messages": messages, "max_tokens": 9, "temperature": 0.7, "stream": True, "n": 1}
    chat = read_conversation(_file(tmp_path, body))
    assert (len(chat.messages), chat.seen, chat.max_tokens) == (3, "It is 4712.", 9)
    assert dict(chat.params) == {"temperature": 0.7}
    assert chat.names_sampling
    assert conversation_of(chat.as_request(), "x").messages == chat.messages


TEXT_LINE = (
    "[2026-01-31 12:00:00] Receive OpenAI: obj={'model': 'm', 'messages': [{'role': 'user',"
    " 'content': \"it's {odd}: \\n\"}], 'temperature': 0.5}, headers={'a': 'b'}"
)
OTHER_LINES = (
    "[2026-01-31 12:00:00] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[1, 2])\n"
    "[2026-01-31 12:00:01] Finish: obj=GenerateReqInput(rid='a'), out={'text': 'x'}\n"
)


def test_a_log_line_is_read_as_text_and_as_json(tmp_path):
    chat = read_conversation(_file(tmp_path, OTHER_LINES + TEXT_LINE + "\n"))
    assert text_of(chat.messages[0]) == "it's {odd}: \n"
    assert dict(chat.params) == {"temperature": 0.5}
    event = {"timestamp": "t", "event": "request.received.openai"}
    line = json.dumps(event | {"obj": {"messages": [_user("a")], "max_tokens": 3}})
    for text in (line, f"[2026-01-31 12:00:00] {line}\n{OTHER_LINES}"):
        assert read_conversation(_file(tmp_path, text)).max_tokens == 3


def test_several_requests_are_listed_and_one_is_chosen(tmp_path):
    lines = [json.dumps({"obj": {"messages": [_user(f"question {n}")]}}) for n in range(40)]
    path = _file(tmp_path, "\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        read_conversation(path)
    said = str(caught.value).splitlines()
    assert said[0].endswith("holds 40 requests: choose one with --entry N")
    assert said[2].split() == ["2", "1", "messages:", "question", "1"]
    assert said[-1] == "  … 10 more"
    assert text_of(read_conversation(path, entry=40).messages[0]) == "question 39"
    with pytest.raises(ConfigError, match="and no entry 41"):
        read_conversation(path, entry=41)


def test_a_shortened_entry_is_refused_with_the_level_that_keeps_it_whole(tmp_path):
    half = "x" * 1024
    text = f"[t] Receive OpenAI: obj={{'messages': '{half}' ... '{half}'}}"
    line = json.dumps({"obj": {"messages": [_user(f"{half}...{half}")]}})
    for content in (text, line):
        with pytest.raises(ConfigError, match=r"shortened its texts.*--log-requests-level 3"):
            read_conversation(_file(tmp_path, content))
    whole = {"messages": [_user("a")], "stop": ["..."]}
    assert read_conversation(_file(tmp_path, json.dumps(whole))).params["stop"] == ["..."]


# ---- taking apart


def test_tool_results_stay_with_their_calls():
    system = {"role": "system", "content": "s"}
    messages = [system, _user("a"), *_called(), {"role": "assistant", "content": "b"}, _user("c")]
    blocks = blocks_of(messages)
    assert [len(block) for block in blocks] == [1, 4, 1]
    chat = conversation_of({"messages": messages, "tools": [{"function": {}}]}, "x")
    for _, candidate in simpler(chat):
        roles = [m["role"] for m in candidate.messages]
        calls = [m for m in candidate.messages if m.get("tool_calls")]
        assert roles.count("tool") == len(calls)
        assert candidate.messages[-1] == messages[-1]


def test_filler_goes_where_it_means_nothing():
    chat = conversation_of({"messages": CHAT}, "x")
    longer = lengthened(chat, 3)
    assert text_of(longer.messages[-2]) == "I have noted that down. ok!"
    assert longer.question == chat.question
    alone = lengthened(conversation_of({"messages": [_user("Why?")]}, "x"), 2)
    assert text_of(alone.messages[0]) == "ok Why?"


@pytest.mark.parametrize(
    ("question", "pinned"),
    [("What does box 3 hold?", "Box 3 holds 4444."), ("to a file", "Box 8 holds 9999.")],
)
def test_the_turn_that_a_question_is_about_is_told_by_rare_words(question, pinned):
    chat = conversation_of({"messages": [*CHAT[:-1], _user(question)]}, "x")
    assert [text_of(message) for message in topic_of(chat)] == [pinned]


@pytest.mark.parametrize(
    ("told", "question", "fact"),
    [
        (["My locker code is 4711.", "My door code is 99881."], "What is my locker code?", "4711"),
        (
            ["My locker code is 4711. Actually, my locker code is 4712."],
            "What is my locker code?",
            "4712",
        ),
        (["Box 3 holds 4444. Box 4 holds 5555."], "Right. And what does box 4 hold?", ""),
        (["I paid 4500 for the flight to Paris."], "What is the weather in Paris?", ""),
        (["My locker code is 4711."], "Write my locker code to a file", ""),
        (["My locker code is 4711 or 4712."], "What is my locker code?", ""),
        (
            ["My locker code is 4711."],
            "Is my locker code 4711, or what is my locker code 4711?",
            "",
        ),
        (["It costs 1,500.25 in all."], "What costs it in all?", ""),
        (["Hello."], "What is it?", ""),
    ],
)
def test_a_fact_is_read_off_the_chat_only_where_it_is_plain(told, question, fact):
    messages = [
        turn for text in told for turn in (_user(text), {"role": "assistant", "content": "x"})
    ]
    assert fact_of(conversation_of({"messages": [*messages, _user(question)]}, "x")) == fact


@pytest.mark.anyio
@pytest.mark.parametrize("needed", [[], [3], [0, 9], [2, 3, 7], list(range(10))])
async def test_minimized_keeps_just_what_is_needed(needed):
    asked = []

    async def fails(kept):
        asked.append(tuple(kept))
        return set(needed) <= set(kept)

    assert await minimized(list(range(10)), fails) == needed
    assert len(asked) <= 10 * 10


@pytest.mark.parametrize(
    ("failing", "found"),
    [
        ({3, 7}, (3, 4)),
        ({1, 3, 5, 7}, (1, 2)),
        ({3}, None),
        ({3, 6}, None),
        (set(), None),
        (set(range(8)), None),
    ],
)
def test_a_residue_is_named_only_where_it_explains_every_length(failing, found):
    assert residue_of([(40 + n, n in failing) for n in range(8)]) == found


def test_rare_failures_are_tried_more_often():
    def tally(failed, of):
        one = {"why": "", "reply": None, "trial": ""}
        return Tally(tries=[Try(failed=n < failed, **one) for n in range(of)])

    assert [tries_for(tally(k, 5)) for k in (5, 4, 3, 1)] == [1, 2, 4, 8]


def test_a_smaller_chat_must_still_hold_what_a_good_answer_needs():
    judge = Judge(expect=("4444",))
    whole = conversation_of({"messages": CHAT}, "x")
    facts = judge.facts_in(whole.context)
    assert facts == ("4444",)
    alone = conversation_of({"messages": [CHAT[-1]]}, "x")
    assert not judge.answerable(alone, facts)
    assert not Judge().answerable(alone, ())  # of a single turn, a denial is true
    assert Judge(reject=("leak",)).answerable(alone, ())


# ---- against servers


class Server(FakeVLLM):
    """Answers "What does box N hold?" from the messages it was sent, as `knob("sees")` allows."""

    def seen(self, body):
        sees = self.knob("sees", "all")
        users = [m for m in body["messages"] if m["role"] == "user"]
        if sees == "last":
            return users[-1:]
        if sees == "odd" and len(words_of(body["messages"])) % 2:
            return users[-1:]
        if sees == "hot" and body.get("temperature", 0) > 0.5:
            return users[-1:]
        return users

    def answer(self, body):
        asked = re.search(r"box (\d)", str(body["messages"][-1]["content"]))
        if asked is None:
            return super().answer(body)
        told = " ".join(str(m["content"]) for m in self.seen(body))
        found = re.search(rf"Box {asked[1]} holds (\d+)", told)
        return [found[1] if found else "This is the first message in our conversation."]

    async def chat(self, request, connection):
        if self.knob("sees") == "last" and self.knob("renders_last"):
            body = request.json
            request.body = json.dumps(body | {"messages": body["messages"][-1:]}).encode()
        await super().chat(request, connection)


def _triage(tmp_path, server, *words, body=None):
    path = _file(tmp_path, body or {"messages": CHAT, "max_tokens": 32})
    folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
    code = main(
        [
            *("triage", str(path), f"--base-url={server.base_url}", f"--run-dir={folder}"),
            *("--repeats=2", *words),
        ]
    )
    records = list(read_journal(folder / "run.jsonl"))
    return code, records, folder


def _verdict(records):
    assert isinstance(records[0], Manifest)
    assert isinstance(records[-1], Verdict)
    return records[-1].sentence.partition(":")[0]


def test_a_server_that_forgets_is_attention_or_the_model_until_stock_speaks(tmp_path, capsys):
    with Server(sees="last") as server, Server() as healthy:
        code, records, folder = _triage(tmp_path, server, "--expect=4444")
        assert (code, _verdict(records)) == (1, "lost in attention")
        assert records[-1].blame == "unknown"
        code, records, _ = _triage(tmp_path, server, "--expect=4444", f"--stock={healthy.base_url}")
        assert (code, records[-1].blame) == (1, "deployment")
        code, records, _ = _triage(tmp_path, server, "--expect=4444", f"--stock={server.base_url}")
        assert (code, _verdict(records)) == (1, "model limit")
        code, records, _ = _triage(tmp_path, server, f"--hop={healthy.base_url}")
        assert (_verdict(records), records[-1].blame) == ("lost in attention", "deployment")
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
        _user("My locker code is 4711."),
        {"role": "assistant", "content": "OK."},
        _user("What is my locker code?"),
    ]
    with FakeSGLang() as server:
        server.answer = lambda body: ["It", "is", "4712."]
        code, _, _ = _triage(tmp_path, server, body={"messages": messages})
    assert code == 1
    page = capsys.readouterr().out
    assert "expected    the answer holds '4711'" in page
    assert "it was read off the chat" in page


def test_a_hop_that_does_not_answer_is_no_end(tmp_path):
    with Server(sees="last") as server:
        hop = "--hop=http://127.0.0.1:9/v1"
        code, records, _ = _triage(tmp_path, server, "--expect=4444", hop)
    assert code == 1
    said = next(r for r in records if isinstance(r, Finding) and r.claim == "triage/hop").reason
    assert "http://127.0.0.1:9/v1 does not answer" in said


def test_a_healthy_server_is_not_reproduced_with_the_rate_that_would_have_shown(tmp_path, capsys):
    with Server() as server:
        code, records, folder = _triage(tmp_path, server, "--expect=4444", "--repeats=10")
        assert (code, _verdict(records)) == (0, "not reproduced")
    assert "greedy 0 of 10 fail; a failure in more than 26% of replays" in capsys.readouterr().out
    assert not (folder / "smallest.json").exists()
    assert (folder / "report.html").exists()


def test_a_turn_that_adds_no_tokens_is_lost_in_rendering(tmp_path):
    with Server(sees="last", renders_last=True) as server:
        code, records, _ = _triage(tmp_path, server)
        assert (code, _verdict(records)) == (1, "lost in rendering")
        finding = next(
            r for r in records if isinstance(r, Finding) and r.claim == "triage/rendering"
        )
        assert "adds 0 tokens" in finding.reason


def test_a_denial_is_a_failure_where_nothing_else_is_expected(tmp_path):
    with Server(sees="last") as server:
        code, records, folder = _triage(tmp_path, server)
    assert (code, _verdict(records)) == (1, "lost in attention")
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
        code, records, folder = _triage(tmp_path, server, "--expect=4444", body=body)
    assert (code, _verdict(records)) == (1, "lost in sampling")
    assert json.loads((folder / "smallest.request.json").read_text())["temperature"] == 0.9


def test_lengths_that_fail_are_found_from_one_that_does_not(tmp_path):
    with Server(sees="odd") as server:
        even = CHAT if len(words_of(CHAT)) % 2 == 0 else [_user("hi"), *CHAT]
        code, records, _ = _triage(tmp_path, server, "--expect=4444", body={"messages": even})
    assert (code, _verdict(records)) == (1, "lost in attention")
    assert "of 1 modulo 2 tokens" in records[-1].sentence


def test_the_bound_on_requests_is_kept(tmp_path):
    with Server(sees="last") as server:
        _, records, _ = _triage(tmp_path, server, "--expect=4444", "--requests=20")
        assert sum(isinstance(r, Trial) for r in records) <= 20
        code, _, _ = _triage(tmp_path, server, "--requests=10", "--repeats=50")
    assert code == 2


def test_the_smallest_chat_is_sent_again_by_curl_and_by_triage(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123456")
    with Server(sees="last") as server:
        _, _, folder = _triage(tmp_path, server, "--expect=4444")
        script = (folder / "smallest.sh").read_text()
        assert '"Authorization: Bearer $OPENAI_API_KEY"' in script
        assert "sk-secret" not in script + (folder / "run.jsonl").read_text()
        sent = subprocess.run(
            ["sh", str(folder / "smallest.sh")], capture_output=True, check=True, timeout=30
        )
        assert "first message" in json.loads(sent.stdout)["choices"][0]["message"]["content"]
        again = main(
            [
                "triage",
                str(folder / "smallest.json"),
                f"--base-url={server.base_url}",
                f"--run-dir={tmp_path / 'again'}",
            ]
        )
    assert again == 1
    assert "expected    the answer holds '4444'" in capsys.readouterr().out
    trial = next(r for r in read_journal(folder / "run.jsonl") if isinstance(r, Trial))
    assert main(["replay", str(folder), trial.id]) == 2
    assert "sent again by `fidelity triage RUN/smallest.json`" in capsys.readouterr().err


def test_a_server_without_usage_leaves_the_rendering_open(tmp_path):
    class Silent(FakeSGLang):
        usage = False

        def answer(self, body):
            return ["This is the first message."]

    with Silent() as server:
        code, records, _ = _triage(tmp_path, server)
    assert (code, _verdict(records)) == (1, "undecided")


class Stale(FakeSGLang):
    """Answers from a cache that holds somebody else's state, until it is flushed."""

    cached_tokens = True

    def answer(self, body):
        return ["Box 3 holds 4444." if self.flushed else "This is the first message."]


def test_what_a_flush_cures_is_lost_in_the_prefix_cache(tmp_path):
    with Stale() as server:
        code, records, _ = _triage(tmp_path, server, "--expect=4444", "--allow=disruptive")
        assert (code, _verdict(records)) == (1, "lost in the prefix cache")
        assert records[-1].blame == "deployment"
        server.flushed = 0
        _, records, _ = _triage(tmp_path, server, "--expect=4444")  # without leave it is not
        assert server.flushed == 0
        assert _verdict(records) != "lost in the prefix cache"


def test_a_server_that_is_not_there_leaves_a_report_that_says_so(tmp_path, capsys):
    path = _file(tmp_path, {"messages": CHAT})
    run = ["--base-url=http://127.0.0.1:9/v1", f"--run-dir={tmp_path / 'run'}"]
    assert main(["triage", str(path), *run]) == 2
    assert "cannot connect" in capsys.readouterr().err
    last = list(read_journal(tmp_path / "run" / "run.jsonl"))[-1]
    assert last.sentence.startswith("not measured: ")
    assert (tmp_path / "run" / "report.html").exists()


def test_an_interrupted_triage_keeps_what_was_asked(tmp_path):
    with Server(sees="last") as server:
        path = _file(tmp_path, {"messages": CHAT})
        words = ["triage", str(path), f"--base-url={server.base_url}", "--repeats=100"]
        words += ["--requests=100000", f"--run-dir={tmp_path / 'run'}"]
        harness = subprocess.Popen(
            [sys.executable, "-m", "fidelity.cli", *words], stdout=subprocess.PIPE, text=True
        )
        with harness:
            journal = tmp_path / "run" / "run.jsonl"
            deadline = time.monotonic() + 30
            while not journal.exists() or journal.read_bytes().count(b"\n") < 20:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            harness.send_signal(signal.SIGTERM)
            said = harness.stdout.read()
            assert harness.wait(20) == 130
    assert "interrupted; what was asked is kept" in said
    last = list(read_journal(journal))[-1]
    assert last.interrupted


def test_reasoning_is_switched_also_where_the_chat_sets_template_arguments(tmp_path):
    with FakeSGLang() as server:
        server.answer = lambda body: ["This is the first message."]
        body = {"messages": CHAT, "chat_template_kwargs": {"lang": "en", "thinking": True}}
        _triage(tmp_path, server, body=body)
        sent = [
            r.json["chat_template_kwargs"]
            for r in server.requests
            if r.path.endswith("completions") and r.json.get("chat_template_kwargs")
        ]
    assert {"lang": "en", "thinking": False, "enable_thinking": False} in sent
    assert {"lang": "en", "thinking": True, "enable_thinking": True} in sent


# ---- templates of healthy servers


DEFAULT_SYSTEM = "You are a helpful assistant of " + "many " * 20 + "words."
DENSE = "=" * 400
THOUGHT = "<think>" + "they say so and I shall keep it in mind " * 12 + "</think>"


class Templated(Server):
    """Forgets as `Server` does, behind a template as many models have it: nothing is lost there.

    It writes its own system message where none is given, and drops earlier reasoning.
    """

    def rendered(self, messages):
        given = [] if messages[0]["role"] == "system" else [_system(DEFAULT_SYSTEM)]
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


def _system(text):
    return {"role": "system", "content": text}


def _answer(text):
    return {"role": "assistant", "content": text}


ASKED = _user("What does box 3 hold?")
TEMPLATED_CHATS = {
    "default_system": [_system("Box 3 holds 4444."), _user("Hello."), _answer("Hi."), ASKED],
    "earlier_reasoning": [
        _user("Guess what it holds."),
        _answer(f"{THOUGHT}Box 3 holds 4444."),
        ASKED,
    ],
    "dense_text": [_user(f"Box 3 holds 4444 and {DENSE}"), _answer("OK."), ASKED],
}


def _rendering(records):
    return next(r for r in records if isinstance(r, Finding) and r.claim == "triage/rendering")


@pytest.mark.parametrize("tokenizer", [True, False])
@pytest.mark.parametrize("chat", list(TEMPLATED_CHATS))
def test_a_healthy_template_loses_nothing_in_rendering(tmp_path, chat, tokenizer):
    with Templated(sees="last", tokenizer=tokenizer) as server:
        body = {"messages": TEMPLATED_CHATS[chat], "max_tokens": 32}
        _, records, _ = _triage(tmp_path, server, "--expect=4444", body=body)
    finding = _rendering(records)
    assert finding.outcome != "fail", finding.reason
    assert records[-1].blame != "deployment"
    if chat != "dense_text" or tokenizer:
        assert _verdict(records) == "lost in attention", finding.reason


@pytest.mark.parametrize("tokenizer", [True, False])
@pytest.mark.parametrize(
    ("drops", "chat"), [("answers", "earlier_reasoning"), ("system", "default_system")]
)
def test_a_template_that_loses_the_fact_is_lost_in_rendering(tmp_path, drops, chat, tokenizer):
    with Templated(sees="last", drops=drops, tokenizer=tokenizer) as server:
        body = {"messages": TEMPLATED_CHATS[chat], "max_tokens": 32}
        code, records, _ = _triage(tmp_path, server, "--expect=4444", body=body)
    assert (code, _verdict(records)) == (1, "lost in rendering"), _rendering(records).reason
    assert records[-1].blame == "deployment"


def test_a_fact_that_stands_in_earlier_reasoning_alone_blames_no_deployment(tmp_path):
    chat = [_user("Guess."), _answer("<think>Box 3 holds 4444.</think>I know it now."), ASKED]
    with Templated(sees="last") as server:
        body = {"messages": chat, "max_tokens": 32}
        code, records, _ = _triage(tmp_path, server, "--expect=4444", body=body)
    assert code == 1
    assert records[-1].blame == "unknown"
    assert "stands only in earlier reasoning" in _rendering(records).reason


# ---- hostile input, and what reaches disk


def _nested(levels):
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"messages": [_user("x") | {"tool_calls": ["x"]}]}, "tool_calls is no list of calls"),
        ({"messages": [_user("x") | {"tool_calls": 3}]}, "tool_calls is no list of calls"),
        ({"messages": [_user("x")], "stop": json.loads(_nested(200))}, "nested more than 100"),
        ({"messages": [_user([json.loads(_nested(200))])]}, "nested more than 100"),
        ([_user([json.loads(_nested(200))])], "nested more than 100"),
        (_nested(100_000), "is neither a JSON chat"),
        (f"[2026] Receive OpenAI: obj={_nested(100_000)}\nx", "cannot be read"),
        (f'[2026] {{"obj": {_nested(100_000)}}}\nx', "is neither a JSON chat"),
        (f'[2026] {{"obj": {{"messages": [], "b": {_nested(400)}}}}}\nx', "nested more than 100"),
    ],
)
def test_hostile_input_is_one_clear_sentence(tmp_path, content, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read_conversation(_file(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_chats_in_parts_alone_are_lengthened_and_salted_with_their_images_kept():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [{"type": "text", "text": "Why?"}, image]
    chat = conversation_of({"messages": [_user(parts)]}, "x")
    for changed in (lengthened(chat, 2), salted(chat, "ok")):
        assert text_of(changed.messages[0]) == "ok Why?"
        assert changed.messages[0]["content"][-1] == image


def test_what_a_log_says_is_listed_without_control_characters(tmp_path):
    lines = [
        json.dumps({"timestamp": "\x1b[31mnow" + "w" * 500, "obj": {"messages": [_user("a")]}}),
        json.dumps({"timestamp": "\x1b]0;x\x07\n", "obj": {"messages": "no"}}),
    ]
    with pytest.raises(ConfigError, match="choose one") as caught:
        read_conversation(_file(tmp_path, "\n".join(lines)))
    said = str(caught.value)
    assert all(char.isprintable() for line in said.splitlines() for char in line)
    assert len(said.splitlines()) == 3
    assert max(map(len, said.splitlines()[1:])) < 200


def test_keys_of_a_logged_request_are_neither_sent_nor_written(tmp_path, capsys):
    key = "sk-logged-0123456789"
    body = {
        "messages": CHAT,
        "api_key": key,
        "extra_headers": {"Authorization": f"Bearer {key}"},
        "metadata": {"user": {"access_token": key}},
    }
    with Server(sees="last") as server:
        _, _, folder = _triage(tmp_path, server, "--expect=4444", body=body)
        sent = [json.dumps(r.json) for r in server.requests if r.path.endswith("completions")]
    for path in folder.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes(), path
    assert json.loads((folder / "smallest.request.json").read_text())["messages"]
    assert not any(key in text for text in sent)
    page = " ".join(capsys.readouterr().out.split())
    assert "are not sent: api_key, extra_headers, access_token" in page


def test_what_was_not_reproduced_is_no_certificate(tmp_path):
    with Server() as server:
        code, records, _ = _triage(tmp_path, server, "--expect=4444")
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


UNLUCKY = [_user("Box 3 holds 4444."), _answer("OK."), ASKED]


@pytest.mark.parametrize("option", ["stock", "hop"])
def test_one_prompt_that_fails_here_and_not_elsewhere_convicts_nobody(tmp_path, option):
    with Unlucky() as server, Server() as other:
        words = ["--expect=4444", f"--{option}={other.base_url}"]
        _, records, _ = _triage(tmp_path, server, *words, body={"messages": UNLUCKY})
    finding = next(r for r in records if isinstance(r, Finding) and r.claim == f"triage/{option}")
    assert finding.outcome == "inconclusive", finding.reason
    assert "here 0 of 8 fail, there 0 of 8" in finding.reason
    assert records[-1].blame == "unknown"
