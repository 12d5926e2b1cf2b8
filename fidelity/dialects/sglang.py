"""SGLang: native control endpoints and metrics, from its documentation.

Abort matches ids by prefix, so ids are full and random; /flush_cache works by GET as well as POST,
so its path is never touched without leave.
"""

from fidelity.dialects.dialect import Dialect, Evidence


class _SGLang(Dialect):
    __slots__ = ()

    def recognises(self, evidence: Evidence) -> bool:
        info = evidence.answers.get("/server_info")
        named = isinstance(info, dict) and "model_path" in info
        return evidence.owned_by == "sglang" or "/get_server_info" in evidence.paths or named


SGLANG = _SGLang(
    name="sglang",
    request_id_field="rid",
    abort_path="/abort_request",
    flush_path="/flush_cache",
    server_info_path="/server_info",
    tokenize_path="/tokenize",
    detokenize_path="/detokenize",
    queue_gauges=("sglang:num_queue_reqs",),
    running_gauges=("sglang:num_running_reqs",),
    thinking_keys=("thinking", "enable_thinking"),
    unlock={
        "cached_tokens": "--enable-cache-report",
        "prefix_cache": "start without --disable-radix-cache",
        "metrics": "--enable-metrics",
        "tools": "--tool-call-parser NAME",
        "reasoning": "--reasoning-parser NAME",
    },
)
