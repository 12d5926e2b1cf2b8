"""SGLang: native control endpoints and metrics, from its documentation and protocol.

Abort matches ids by prefix, so ids are full and random; /flush_cache works by GET as well as POST,
so its path is never touched without leave. Older releases count the tokens of texts only: lengths
are then calibrated from usage.
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
    ids_field="return_token_ids",
    unlock={
        "tokenize": "a release whose /tokenize takes messages; until then usage calibrates lengths",
        "detokenize": "a release with /detokenize",
        "token_ids": "a release with return_token_ids",
        "server_info": "a release with /server_info; with --admin-api-key also its key",
        "cached_tokens": "--enable-cache-report",
        "prefix_cache": "start without --disable-radix-cache",
        "metrics": "--enable-metrics",
        "tools": "--tool-call-parser NAME",
        "reasoning": "--reasoning-parser NAME",
        "prompt_logprobs": "no flag: completions with echo give them, and the suites use that",
    },
)
