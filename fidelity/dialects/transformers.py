"""`transformers serve`: the OpenAI API and little else; it has no tokenizer and no metrics."""

from fidelity.dialects.dialect import Dialect, Evidence


class _Transformers(Dialect):
    __slots__ = ()

    def recognises(self, evidence: Evidence) -> bool:
        return "/load_model" in evidence.paths


TRANSFORMERS = _Transformers(
    name="transformers",
    metrics_path=None,
    unlock={
        "tokenize": "not in transformers serve; lengths are calibrated from usage",
        "cached_tokens": "not in transformers serve",
        "logprobs": "not in transformers serve",
    },
)
