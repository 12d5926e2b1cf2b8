"""vLLM: /tokenize, prompt logprobs on both APIs, token ids on request."""

from fidelity.dialects.dialect import Dialect, Evidence


class _VLLM(Dialect):
    __slots__ = ()

    def recognises(self, evidence: Evidence) -> bool:
        return evidence.owned_by == "vllm"


VLLM = _VLLM(
    name="vllm",
    version_path="/version",
    tokenize_path="/tokenize",
    detokenize_path="/detokenize",
    queue_gauges=("vllm:num_requests_waiting",),
    running_gauges=("vllm:num_requests_running",),
    thinking_keys=("thinking", "enable_thinking"),
    ids_field="return_token_ids",
    prompt_logprobs_field="prompt_logprobs",
    unlock={
        "cached_tokens": "--enable-prompt-tokens-details",
        "prefix_cache": "--enable-prefix-caching",
        "tools": "--enable-auto-tool-choice --tool-call-parser NAME",
        "reasoning": "--reasoning-parser NAME",
        "logprobs": "--max-logprobs N",
        "prompt_logprobs": "--max-logprobs N",
    },
)
