"""A deployment for scripts: keeps what was sent, and answers by a counter."""

from types import SimpleNamespace

from fidelity.endpoint.replies import Reply
from fidelity.fuzz.script import Chat


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


def chat(say, conversation="c1", **fields):
    return Chat(conversation=conversation, say=say, **fields)
