"""An engine that dumps what it computes for a few long prompts, and ends."""

import json
import urllib.request

from proxies import UpstreamServer

NAMES = ("amber", "cobalt", "sienna", "umber", "violet", "ochre", "teal")


def dumped(folder, *flags):
    """Serve, ask about facts among numbered lines, and return the folder of dumps."""
    wanted = (f"--dump-activations={folder}", "--disable-prefix-cache", *flags)
    with UpstreamServer(*wanted) as server:
        for lines, at in ((30, 3), (70, 30)):
            ask(server, prompt(lines, at))
    return folder


def prompt(lines, at):
    text = [
        f"{i}. The {NAMES[i * 5 % 7]} gate of hall {i * 37 % 91} opens with {i * 7919 % 9973}."
        for i in range(1, lines)
    ]
    text.insert(at, "The code of the amber lantern is 48213.")
    return "\n".join([*text, "What is the code of the amber lantern?"])


def ask(server, text):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(
        f"{server.base_url}/chat/completions",
        json.dumps({"model": "nano", **body}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        assert json.load(reply)["usage"]["prompt_tokens"] > 500
