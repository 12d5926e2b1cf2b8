"""Any server that answers the OpenAI API and shows nothing else of itself."""

from fidelity.dialects.dialect import Dialect

OPENAI = Dialect(
    unlock={
        "cached_tokens": "report usage.prompt_tokens_details.cached_tokens",
        "logprobs": "a server that supports logprobs",
    },
)
