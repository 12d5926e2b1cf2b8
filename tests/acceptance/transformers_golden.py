"""`transformers` as a golden, in its own process: scores token ids in float32, in vLLM's shapes.

Run with `python -P` outside the checkout: `transformers` must never see this project's `kernels`.
Usage: python -P transformers_golden.py CHECKPOINT PORT MAX_MODEL_LEN
It chats only so far that discovery takes it for a server: always "ok".
"""

import importlib.util
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

for ours in ("kernels", "engine"):
    if importlib.util.find_spec(ours) is not None:
        sys.exit(f"{ours} of the checkout can be imported here, so this is no independent process")

import torch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

CHECKPOINT, PORT, MAX_MODEL_LEN = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
MODEL = AutoModelForCausalLM.from_pretrained(
    CHECKPOINT, dtype=torch.float32, attn_implementation="eager"
).eval()
ONE_AT_A_TIME = threading.Lock()
WORDS = Tokenizer.from_file(f"{CHECKPOINT}/tokenizer.json")


def scored(ids: list[int], top: int) -> list[dict | None]:
    with ONE_AT_A_TIME, torch.no_grad():
        logprobs = MODEL(torch.tensor([ids]), use_cache=False).logits[0].float().log_softmax(-1)
    entries: list[dict | None] = [None]
    for place in range(1, len(ids)):
        row = logprobs[place - 1]
        values, best = row.topk(top)
        chosen = {ids[place]: float(row[ids[place]])}
        chosen |= dict(zip(best.tolist(), values.tolist(), strict=True))
        entries.append(
            {
                str(i): {
                    "logprob": value,
                    "rank": int((row > value).sum()) + 1,
                    "decoded_token": WORDS.decode([i], skip_special_tokens=False),
                }
                for i, value in chosen.items()
            }
        )
    return entries


def completion(body: dict) -> dict:
    ids = body["prompt"]
    ids = WORDS.encode(ids, add_special_tokens=False).ids if isinstance(ids, str) else ids
    choice = {"index": 0, "text": "ok", "finish_reason": "length"}
    if body.get("prompt_logprobs") is not None:
        choice["prompt_logprobs"] = scored(ids, body["prompt_logprobs"])
    usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
    return {"object": "text_completion", "model": "golden", "choices": [choice], "usage": usage}


def chat(body: dict) -> dict:
    message = {"role": "assistant", "content": "ok"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"object": "chat.completion", "model": body["model"], "choices": [choice]}


def tokenize(body: dict) -> dict:
    if "prompt" not in body:
        raise ValueError("only plain texts")
    ids = WORDS.encode(body["prompt"], add_special_tokens=False).ids
    return {"count": len(ids), "tokens": ids, "max_model_len": MAX_MODEL_LEN}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answers = {
            "/health": {},
            "/version": {"version": "transformers"},
            "/v1/models": {
                "data": [{"id": "golden", "owned_by": "vllm", "max_model_len": MAX_MODEL_LEN}]
            },
        }
        found = answers.get(self.path)
        self.answer(404 if found is None else 200, found or {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        serve = {
            "/v1/completions": completion,
            "/v1/chat/completions": chat,
            "/tokenize": tokenize,
        }.get(self.path)
        try:
            self.answer(200, serve(body)) if serve else self.answer(404, {})
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": {"message": str(error)}})

    def answer(self, status: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
