"""Servers of the known kinds, faked as far as discovery looks: real sockets, made-up model.

One token is one word or one line end; answers are deterministic; a prefix cache of whole prompts.
"""

import json
import random
from typing import Any

import anyio
from tiny_http import Connection, Request, TinyServer

SAYS = ["The", "sea", "is", "wide", "and", "blue", "and", "very", "old", "today", "my", "friend"]
THINKS = ["the", "user", "asks"]


def words_of(messages: list[dict[str, Any]], tools: Any = None) -> list[str]:
    text = "".join(f"<{m['role']}> {m['content']} " for m in messages)
    return (text + (json.dumps(tools) if tools else "")).split()


class FakeServer(TinyServer):
    """A plain OpenAI server; subclasses and knobs add what others have."""

    owned_by = "someone"
    small: dict[str, Any] = {}  # noqa: RUF012
    """GET path -> JSON."""

    def __init__(self, **knobs: Any) -> None:
        super().__init__()
        self.knobs = knobs
        self.cache: set[str] = set()
        self.unknown: list[str] = []

    def knob(self, name: str, default: Any = None) -> Any:
        return self.knobs.get(name, getattr(self, name, default))

    def model_card(self) -> dict[str, Any]:
        return {"id": "tiny", "object": "model", "owned_by": self.owned_by}

    async def handle(self, request: Request, connection: Connection) -> None:
        path = request.path
        if path == "/v1/models":
            cards = [self.model_card() | {"id": name} for name in self.knob("models", ["tiny"])]
            await connection.respond(200, {"object": "list", "data": cards})
        elif path == "/v1/chat/completions":
            await self.chat(request, connection)
        elif path == "/v1/completions" and self.knob("completions", True):
            answer = {"choices": [{"text": " Paris", "finish_reason": "length"}]}
            await connection.respond(200, answer)
        elif path in self.small:
            await connection.respond(200, self.small[path])
        elif not await self.more(request, connection):
            self.unknown.append(path)
            await connection.respond(404, {"detail": "Not Found"})

    async def more(self, request: Request, connection: Connection) -> bool:
        return False

    async def chat(self, request: Request, connection: Connection) -> None:
        body = request.json
        for field in self.knob("refuses", ()):
            if field in body:
                error = {"message": f"Unsupported parameter: {field}", "code": 400}
                await connection.respond(400, {"error": error})
                return
        if body["model"] not in self.knob("models", ["tiny"]):
            error = {"message": f"The model {body['model']} does not exist", "code": 404}
            await connection.respond(404, {"error": error})
            return
        prompt = words_of(body["messages"], body.get("tools") if self.knob("tools") else None)
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        words = [word + " " for word in self.answer(body)][:limit]
        finish = "length" if len(words) == limit else "stop"
        for stop in body.get("stop") or () if self.knob("stop", True) else ():
            text = "".join(words)
            if stop in text:
                words, finish = [text.partition(stop)[0]], "stop"
        key = " ".join(prompt)
        cached = len(prompt) - 1 if key in self.cache else 0
        if self.knob("prefix_cache", False):
            self.cache.add(key)
        usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": len(words)}
        if self.knob("cached_tokens"):
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        await self.send(body, connection, words, finish, usage)

    def answer(self, body: dict[str, Any]) -> list[str]:
        if body.get("temperature", 0) > 0:
            seed = body.get("seed") if self.knob("seed", True) else None
            return random.Random(seed).sample(SAYS, 8)  # noqa: S311
        return SAYS

    def logprobs(self, body: dict[str, Any], word: str) -> dict[str, Any]:
        if not (body.get("logprobs") and self.knob("gives_logprobs")):
            return {}
        tops = [{"token": t, "logprob": -1.0} for t in "abcde"[: body.get("top_logprobs", 0)]]
        return {"logprobs": {"content": [{"token": word, "logprob": -0.5, "top_logprobs": tops}]}}

    def thinks(self, body: dict[str, Any]) -> bool:
        return False

    async def send(self, body, connection, words, finish, usage) -> None:
        thought = THINKS if self.thinks(body) else []
        if not body.get("stream") or not self.knob("stream", True):
            message: dict[str, Any] = {"role": "assistant", "content": "".join(words)}
            if thought:
                message["reasoning_content"] = " ".join(thought)
            choice = {"index": 0, "message": message, "finish_reason": finish}
            answer = {"choices": [choice], "usage": usage} | self.extras(body, choice, usage)
            await connection.respond(200, answer)
            return
        await connection.start()
        for word in thought:
            await connection.event({"choices": [{"delta": {"reasoning_content": word}}]})
        for word in words:
            choice = {"index": 0, "delta": {"content": word}} | self.logprobs(body, word)
            await connection.event({"choices": [choice]})
        await connection.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if body.get("stream_options", {}).get("include_usage") and self.knob("usage", True):
            await connection.event({"choices": [], "usage": usage})
        await connection.event("[DONE]")
        await connection.end()

    def extras(self, body: dict, choice: dict, usage: dict) -> dict[str, Any]:
        return {}


class FakeVLLM(FakeServer):
    owned_by = "vllm"
    small = {"/version": {"version": "0.32.0"}}  # noqa: RUF012
    tools = True

    def __init__(self, **knobs: Any) -> None:
        super().__init__(**({"gives_logprobs": True, "prefix_cache": True} | knobs))

    def model_card(self) -> dict[str, Any]:
        return super().model_card() | {"max_model_len": 8192}

    async def more(self, request: Request, connection: Connection) -> bool:
        if request.path == "/metrics":
            text = "vllm:num_requests_waiting 0\nprocess_start_time_seconds 1e9\n"
            await connection.respond(200, text, {"content-type": "text/plain"})
        elif request.path == "/tokenize":
            body = request.json
            if "messages" in body:
                count = len(words_of(body["messages"], body.get("tools")))
            else:
                count = len(body["prompt"].split())
            count += self.knob("lie", 0) if count > self.knob("lie_above", 0) else 0
            answer = {"count": count, "tokens": list(range(count)), "max_model_len": 8192}
            await connection.respond(200, answer)
        elif request.path == "/detokenize":
            await connection.respond(200, {"prompt": self.knob("detokenized", "?")})
        else:
            return False
        return True

    def extras(self, body: dict, choice: dict, usage: dict) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "prompt_logprobs" in body:
            entry = {"1": {"logprob": -1.0, "rank": 1, "decoded_token": "a"}}
            found["prompt_logprobs"] = [None, *[entry] * (usage["prompt_tokens"] - 1)]
        if body.get("return_token_ids"):
            found["prompt_token_ids"] = list(range(usage["prompt_tokens"]))
            choice["token_ids"] = [1, 2]
        return found


class FakeSGLang(FakeServer):
    """SGLang as documented: its native control endpoints, ids in the choice, SGLang's metrics.

    Flush works by GET too, so that a look at its path would flush; it is refused while requests
    run. An abort ends every request whose id begins with the one that is given.
    """

    owned_by = "sglang"
    small = {  # noqa: RUF012
        "/server_info": {
            "model_path": "/m",
            "version": "0.5.9",
            "page_size": 256,
            "api_key": "s",
            "internal_states": [{"use_topk_v2": True, "effective_max_running_requests": 256}],
        }
    }
    tools = True

    def __init__(self, **knobs: Any) -> None:
        super().__init__(**({"gives_logprobs": True, "prefix_cache": True} | knobs))
        self.flushed = 0
        self.running: dict[str, bool] = {}
        """Ids of requests in progress -> aborted by call."""

    async def more(self, request: Request, connection: Connection) -> bool:
        path = request.path.split("?")[0]
        if path == "/flush_cache":
            busy = bool(self.running)
            self.flushed += not busy
            await connection.respond(400 if busy else 200, "Cache flushed.\n")
        elif path == "/abort_request" and request.method == "POST":
            body = request.json
            for rid in self.running:
                if body.get("abort_all") or (body.get("rid") and rid.startswith(body["rid"])):
                    self.running[rid] = True
            await connection.respond(200, "")
        elif path == "/metrics" and self.knob("metrics"):
            text = 'sglang:num_running_reqs{model="m"} 1\nsglang:num_queue_reqs{model="m"} 0\n'
            await connection.respond(200, text, {"content-type": "text/plain"})
        elif path == "/tokenize" and self.knob("tokenizer"):
            await self.tokenize(request.json, connection)
        elif path == "/detokenize" and self.knob("tokenizer"):
            await connection.respond(200, {"text": "The tide of 1842 rose twice."})
        else:
            return False
        return True

    async def tokenize(self, body: dict[str, Any], connection: Connection) -> None:
        if "messages" in body and self.knob("tokenizer") == "texts":
            await connection.respond(
                422, {"detail": [{"msg": "Field required", "loc": ["prompt"]}]}
            )
            return
        words = (
            words_of(body["messages"], body.get("tools"))
            if "messages" in body
            else body["prompt"].split()
        )
        count = len(words)
        answer = {"tokens": list(range(count)), "count": count, "max_model_len": 4096}
        await connection.respond(200, answer)

    async def send(self, body, connection, words, finish, usage) -> None:
        if not (body.get("stream") and self.knob("slow")):
            await super().send(body, connection, words, finish, usage)
            return
        rid = body["rid"]
        self.running[rid] = False
        await connection.start()
        for word in words * 6:
            await connection.event({"choices": [{"index": 0, "delta": {"content": word}}]})
            await anyio.sleep(0.01)
            if self.running[rid]:
                finish = "abort"
                break
        await connection.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        await connection.event("[DONE]")
        await connection.end()
        del self.running[rid]

    def thinks(self, body: dict[str, Any]) -> bool:
        return bool(body.get("chat_template_kwargs", {}).get("thinking"))

    def extras(self, body: dict, choice: dict, usage: dict) -> dict[str, Any]:
        if body.get("return_token_ids") and self.knob("ids", True):
            choice["prompt_token_ids"] = list(range(usage["prompt_tokens"]))
            choice["token_ids"] = [1, 2]
        return {}


class FakeLlamaCpp(FakeServer):
    owned_by = "llamacpp"
    small = {  # noqa: RUF012
        "/props": {"default_generation_settings": {"n_ctx": 4096}, "build_info": "b6000-abc"}
    }

    async def more(self, request: Request, connection: Connection) -> bool:
        if request.path == "/apply-template":
            text = " ".join(words_of(request.json["messages"]))
            await connection.respond(200, {"prompt": text})
        elif request.path == "/tokenize":
            count = len(request.json["content"].split())
            await connection.respond(200, {"tokens": list(range(count))})
        else:
            return False
        return True


class FakeTransformers(FakeServer):
    small = {"/openapi.json": {"paths": {"/load_model": {}, "/v1/chat/completions": {}}}}  # noqa: RUF012

    def answer(self, body: dict[str, Any]) -> list[str]:
        return ["<think>", "hm", "</think>", *super().answer(body)]
