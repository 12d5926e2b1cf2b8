"""Dialects of servers: one small file each, one explicit table."""

from fidelity.dialects.dialect import Dialect, Evidence, TokenizeQuery
from fidelity.dialects.engine import ENGINE
from fidelity.dialects.llamacpp import LLAMACPP
from fidelity.dialects.openai import OPENAI
from fidelity.dialects.sglang import SGLANG
from fidelity.dialects.transformers import TRANSFORMERS
from fidelity.dialects.vllm import VLLM

# the order of recognition: the engine speaks SGLang's endpoints too, the plain one claims nothing
DIALECTS: tuple[Dialect, ...] = (ENGINE, SGLANG, VLLM, LLAMACPP, TRANSFORMERS, OPENAI)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def recognise(evidence: Evidence) -> Dialect:
    """Return the dialect of a server, the plain one when it shows no marks."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(evidence)), OPENAI)


__all__ = ["BY_NAME", "DIALECTS", "OPENAI", "Dialect", "Evidence", "TokenizeQuery", "recognise"]
