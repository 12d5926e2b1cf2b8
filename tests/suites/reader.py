"""A model that reads: it answers the suites' questions from what it can see of a conversation.

It stands for a whole deployment in the same process. A subclass sees less than it was sent, or
says something else: that is a broken server, which a suite must call by its name.
"""

import re
from types import SimpleNamespace

import anyio.lowlevel

from fidelity.config.deployment_spec import CAPABILITIES, DeploymentSpec
from fidelity.deployment.capabilities import Capabilities
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.replies import Reply, Tokenized
from fidelity.errors import CapabilityMissing
from fidelity.records import CapabilityState

TOKEN = re.compile(r"[A-Za-z]+|\d|[^\w\s]|\n")
PAGE = 16
TURN_TOKENS = 3


def tokens_of(text):
    return len(TOKEN.findall(text))


def words_of(message):
    content = message.get("content") or ""
    calls = "".join(
        f" {c['function']['name']} {c['function']['arguments']}"
        for c in message.get("tool_calls", ())
    )
    return content + calls


class Reader:
    """A healthy server. Override `sees`, `says` or `usage` to break it."""

    def __init__(self):
        self.server = SimpleNamespace(
            model="reader",
            dialect=SimpleNamespace(thinking_keys=("thinking",)),
            has_server_info=False,
            has_metrics=False,
        )
        self.caps = Caps(max_requests=100_000, max_tokens=None, allow=())
        self.epochs = SimpleNamespace(epoch=0)
        self.transport = SimpleNamespace(base_url="http://127.0.0.1:1/v1")
        self.running = 0
        self.stuck = 0
        self.aborted_openings = set()
        self.asked = []
        self.cached = set()
        self.told = []

    # ---- what a broken server overrides

    def sees(self, messages):
        """Return the messages that reach the model."""
        return messages

    def says(self, messages, text):
        """Return what is sent back instead of the right answer."""
        del messages
        return text

    def counted(self, tokens):
        """Return what the tokenizer endpoint says."""
        return tokens

    # ---- the client's interface

    async def tokenize(self, messages=None, prompt=None, tools=None, *, thinking=None):
        del thinking
        if messages is None:
            return Tokenized(count=self.counted(tokens_of(prompt)))
        return Tokenized(count=self.counted(self.length(messages, tools)))

    def length(self, messages, tools=None):
        turns = sum(tokens_of(words_of(m)) + TURN_TOKENS for m in messages)
        return 1 + turns + sum(tokens_of(str(tool)) for tool in tools or ())

    async def chat(self, messages, *, max_tokens=256, tools=None, **options):
        self.asked.append([dict(m) for m in messages])
        self.running += 1
        try:
            await anyio.lowlevel.checkpoint()
            seen = self.sees(list(messages))
            text = self.says(seen, answer_to(seen))
        finally:
            self.running -= 1
        pieces = re.findall(r"\s*\S+", text)
        aborted = options.get("abort_after_tokens")
        limit = max_tokens if aborted is None else min(aborted, max_tokens)
        cut = len(pieces) > limit
        self.remember(messages, aborted=aborted is not None and cut)
        return self.reply(
            messages,
            text="".join(pieces[:limit]),
            spent=min(len(pieces) + (not cut), limit),
            finish_reason="abort" if cut and aborted is not None else "length" if cut else "stop",
            tools=tools,
        )

    def reply(self, messages, *, text, spent, finish_reason, tools=None):
        return Reply(
            request_id="fid-" + "0" * 32,
            path="/chat/completions",
            text=text,
            finish_reason=finish_reason,
            prompt_tokens=self.prompt_tokens(messages, tools),
            cached_tokens=self.hit(messages),
            completion_tokens=max(1, spent),
            ttft_s=0.001,
            aborted=finish_reason == "abort",
        )

    def prompt_tokens(self, messages, tools):
        return self.length(self.sees(list(messages)), tools)

    def hit(self, messages):
        text = "\x00".join(words_of(m) for m in messages)
        hit = max((len(p) for p in self.cached if text.startswith(p)), default=0)
        self.cached |= {text[:end] for end in range(64, len(text), 64)}
        return hit // 64 * PAGE

    def remember(self, messages, *, aborted):
        if aborted:
            self.aborted_openings.add(words_of(messages[0]))

    async def abort(self, request_id):
        del request_id

    async def metrics(self):
        return {
            "sglang:num_running_reqs": float(self.running),
            "sglang:num_queue_reqs": 0.0,
            "sglang:num_used_tokens": float(self.running * PAGE + self.stuck),
        }

    async def patches(self):
        return []

    async def aclose(self):
        pass


class NoTokenizer(Reader):
    """Healthy, without a tokenizer endpoint."""

    async def tokenize(self, *arguments, **options):
        raise CapabilityMissing("this server has no tokenizer")


def answer_to(messages):
    """Return what a model that reads everything would say."""
    question = words_of(messages[-1])
    for pattern, respond in ANSWERS:
        found = re.search(pattern, question)
        if found:
            return respond(found[1], messages)
    return "OK."


def text_of(messages):
    return "\n".join(words_of(m) for m in messages)


def code(name, messages):
    found = re.findall(rf"code for the {name} is (\d+)", text_of(messages))
    return found[-1] if found else "I cannot find that in the text."


def section_code(title, messages):
    found = re.findall(
        rf"## {title}\n(?:(?!## ).*\n)*?.*The access code is (\d+)", text_of(messages)
    )
    return found[-1] if found else "I cannot find that section."


def personal(what, messages):
    found = re.findall(rf"my {what} is (\d+)", text_of(messages), re.IGNORECASE)
    return f"Your {what} is {found[-1]}." if found else "You have not told me."


def page(topic, messages):
    del messages
    return f"```html\n<html> <head> <title> {topic.title()} </title> " + "<p> hello </p> " * 20


def saved(_, messages):
    pages = re.findall(r"Write a ([a-z ]+) html page", text_of(messages[:-1]))
    if not pages:
        return "There is no earlier page to save. Which page should I write?"
    return f"Saved the {pages[-1]} page to {pages[-1].replace(' ', '_')}.html."


def counted_to(last, messages):
    del messages
    return " ".join(map(str, range(1, int(last) + 1)))


ANSWERS = (
    (r"What is the (?:secret )?code for the ([a-z]+ [a-z]+)\?", code),
    (r"What is the access code in the section ([a-z]+ [a-z]+)\?", section_code),
    (r"What is my ([a-z ]+)\?", personal),
    (r"Write a ([a-z ]+) html page", page),
    (r"^(to a file)$", saved),
    (r"Count from 1 to (\d+)", counted_to),
)


class Deployment:
    """A deployment around a reader."""

    def __init__(self, client, *, max_model_len=700, expects=(), absent=()):
        self.name = "reader"
        self.base_url = client.transport.base_url
        self.spec = DeploymentSpec(name="reader", base_url=self.base_url)
        self.process = None
        self.roles = {}
        self.model = "reader"
        self.expects = tuple(expects)
        self.launched = False
        self.launch_command = ()
        self.server_info = {}
        self.client = client
        self.capabilities = Capabilities(
            states={
                name: CapabilityState(name=name, present=name not in absent)
                for name in CAPABILITIES
            },
            max_model_len=max_model_len,
            page_size=PAGE,
        )

    async def aclose(self):
        pass
