"""The reference model over HTTP: `python -m reference.server --model DIR --port P`.

Greedy, without a cache: every token is computed from scratch, so it is slow and has no state that
could go wrong. Meant as a golden deployment to compare with, for prompts of some thousand tokens.
"""

import argparse
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from reference.endpoints import Endpoints, UnknownModel, error_body

MOST_BYTES = 8 << 20  # of a request's body
MOST_WAITING = 64  # requests at once, one of them computed
IDLE_S = 60.0  # after which a silent connection is closed


class ReferenceServer(ThreadingHTTPServer):
    """One thread a connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], endpoints: Endpoints) -> None:
        """Listen; OSError where the address cannot be had."""
        super().__init__(address, Handler)
        self.places = threading.BoundedSemaphore(MOST_WAITING)
        self.gets: dict[str, Callable[[], Any]] = {
            "/v1/models": endpoints.models,
            "/server_info": endpoints.server_info,
            "/patches": lambda: {"patches": []},
            "/health": dict,
        }
        self.check_model = endpoints.check_model
        self.posts: dict[str, Callable[[Any], Any]] = {
            "/v1/completions": endpoints.complete,
            "/v1/chat/completions": endpoints.chat,
            "/tokenize": endpoints.tokenize,
            "/detokenize": endpoints.detokenize,
        }


class Handler(BaseHTTPRequestHandler):
    """Reads a request, bounded; writes JSON or events."""

    protocol_version = "HTTP/1.1"
    server: ReferenceServer
    timeout = IDLE_S

    def do_GET(self) -> None:
        """Answer what needs no body."""
        path = self.path.partition("?")[0]
        if path in self.server.posts:
            self._refuse(405, f"{path} is asked by POST")
        elif path not in self.server.gets:
            self._refuse(404, f"there is no {path} here")
        else:
            self._send(200, self.server.gets[path]())

    def do_POST(self) -> None:
        """Answer a JSON body."""
        path = self.path.partition("?")[0]
        body = self._body()
        if body is None:
            return
        if path not in self.server.posts:
            self._refuse(404, f"there is no {path} here")
            return
        if not self.server.places.acquire(blocking=False):
            self._refuse(503, f"{MOST_WAITING} requests wait already", "service_unavailable_error")
            return
        try:
            self.server.check_model(body)
            answer = self.server.posts[path](body)
        except UnknownModel as error:
            self._refuse(404, str(error))
            return
        except ValueError as error:
            self._refuse(400, str(error))
            return
        finally:
            self.server.places.release()
        if body.get("stream") and isinstance(answer, list):
            self._stream(answer)
        else:
            self._send(200, answer[0] if isinstance(answer, list) else answer)

    def _body(self) -> dict[str, Any] | None:
        """The JSON object of the request; None when it was refused."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal():
            self._refuse(411, "the request needs a Content-Length")
        elif int(length) > MOST_BYTES:
            self._refuse(413, f"a body of {length} bytes; accepted: {MOST_BYTES}")
        else:
            try:
                body = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError) as error:
                self._refuse(400, f"the body is no JSON: {error}")
                return None
            if isinstance(body, dict):
                return body
            self._refuse(400, f"the body is a JSON {type(body).__name__}; accepted: an object")
        return None

    def _refuse(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
        """Refuse, and hang up: what is left of the body was not read."""
        self.close_connection = True
        self._send(status, error_body(message, kind))

    def _send(self, status: int, body: Any) -> None:
        self._write(status, "application/json", json.dumps(body, ensure_ascii=False))

    def _stream(self, events: list[dict[str, Any]]) -> None:
        lines = [json.dumps(event, ensure_ascii=False) for event in events]
        self._write(200, "text/event-stream", "".join(f"data: {e}\n\n" for e in [*lines, "[DONE]"]))

    def _write(self, status: int, kind: str, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status == 503:
                self.send_header("Retry-After", "1")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
        except OSError:  # the client has left; nobody waits for this answer
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep no log: requests are none of the terminal's business."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m reference.server", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a checkpoint's folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 for any free one")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--served-model-name", help="default: the folder's name")
    parser.add_argument("--max-model-len", type=int, default=16384, help="tokens of a request")
    parser.add_argument("--dump-activations", type=Path, help="a folder: one file a request")
    parser.add_argument("--threads", type=int, default=1, help="more change the last bits")
    flags = parser.parse_args()
    try:
        torch.set_num_threads(flags.threads)
        if flags.dump_activations:
            flags.dump_activations.mkdir(parents=True, exist_ok=True)
        endpoints = Endpoints(
            flags.model,
            name=flags.served_model_name or flags.model.resolve().name,
            dtype=getattr(torch, flags.dtype),
            limit=flags.max_model_len,
            dumps=flags.dump_activations,
        )
        server = ReferenceServer((flags.host, flags.port), endpoints)
    except (OSError, ValueError, OverflowError, RuntimeError) as error:
        parser.exit(2, f"reference.server: {error}\n")
    print(f"serving {endpoints.name} at http://{flags.host}:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
