"""This repository's engine: vLLM's shapes for tokens, SGLang's for control, and /patches."""

from fidelity.dialects.dialect import Dialect, Evidence


class _Engine(Dialect):
    __slots__ = ()

    def recognises(self, evidence: Evidence) -> bool:
        answer = evidence.answers.get("/patches")
        return isinstance(answer, dict) and isinstance(answer.get("patches"), list)


ENGINE = _Engine(
    name="engine",
    request_id_field="rid",
    abort_path="/abort_request",
    flush_path="/flush_cache",
    server_info_path="/server_info",
    patches_path="/patches",
    tokenize_path="/tokenize",
    detokenize_path="/detokenize",
    queue_gauges=("sglang:num_queue_reqs",),
    running_gauges=("sglang:num_running_reqs",),
    thinking_keys=("thinking",),
    ids_field="return_token_ids",
    prompt_logprobs_field="prompt_logprobs",
    prompt_logprobs_start_field="prompt_logprobs_start",
)
