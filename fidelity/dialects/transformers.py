"""`transformers serve`: the OpenAI API and little else.

No tokenizer endpoint, metrics, cached tokens or logprobs, and no flag that would unlock one.
"""

from fidelity.dialects.dialect import Dialect, Evidence


class _Transformers(Dialect):
    __slots__ = ()

    def recognises(self, evidence: Evidence) -> bool:
        return "/load_model" in evidence.paths


TRANSFORMERS = _Transformers(
    name="transformers",
    metrics_path=None,
)
