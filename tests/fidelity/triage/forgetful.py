"""A server that forgets what it was told in the ways that triage must tell apart."""

import json
import re

from fake_servers import FakeVLLM, words_of

from fidelity.cli import main
from fidelity.records import Manifest, Verdict, read_journal
from tests.fidelity.triage.chats import CHAT, chat_file


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


def triaged(tmp_path, server, *words, body=None):
    path = chat_file(tmp_path, body or {"messages": CHAT, "max_tokens": 32})
    folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
    code = main(
        [
            *("triage", str(path), f"--base-url={server.base_url}", f"--run-dir={folder}"),
            *("--repeats=2", *words),
        ]
    )
    records = list(read_journal(folder / "run.jsonl"))
    return code, records, folder


def place_of(records):
    assert isinstance(records[0], Manifest)
    assert isinstance(records[-1], Verdict)
    return records[-1].sentence.partition(":")[0]
