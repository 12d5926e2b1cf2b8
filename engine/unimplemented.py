"""OpenAI and vLLM parameters that this engine does not implement.

Each is accepted only at the values that ask for nothing, so that no request is answered as if a
parameter had been obeyed.
"""

from engine.errors import InvalidRequest
from engine.protocol import GenerationBody

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logit_bias": ({},),
    "repetition_penalty": (1, 1.0),
    "min_tokens": (0,),
    "service_tier": ("auto", "default"),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "functions": (),
    "function_call": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "store": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
    "suffix": ("",),
    "include_obfuscation": (False,),
}


def refuse_unimplemented(body: GenerationBody) -> None:
    """Raises: InvalidRequest: a parameter that asks for something not implemented."""
    for holder in (body, body.stream_options):
        for name, neutral in _NEUTRAL.items():
            value = getattr(holder, name, None)
            if value is None or any(_same(value, accepted) for accepted in neutral):
                continue
            accepted_values = " or ".join(repr(accepted) for accepted in neutral)
            advice = f"leave it out or send {accepted_values}" if neutral else "leave it out"
            raise InvalidRequest(f"{name} is {value!r:.80}, which is not implemented; {advice}.")


def _same(value: object, accepted: object) -> bool:
    """Equality that tells 1 from True."""
    return type(value) is type(accepted) and value == accepted
