"""Everything that the engine raises on purpose.

    EngineError
    ├── ConfigError      a flag or a combination of flags cannot work          exit 2
    ├── CheckpointError  a checkpoint is missing, damaged or of another kind   exit 2
    ├── FaultError       a fault file is missing or breaks the fault contract  exit 2
    ├── InvalidRequest   a request cannot be served as it stands               HTTP 400
    │   └── ContextOverflow  it needs more tokens than the context holds       HTTP 400
    ├── QueueFull        as many requests wait as may wait                     HTTP 503
    └── EngineStopped    the engine's thread has ended; nothing can be served  HTTP 500

Each message is one sentence: what was seen, where, what to do.
"""


class EngineError(Exception):
    """Root of the tree."""


class ConfigError(EngineError):
    """A flag or a combination of flags cannot work."""


class CheckpointError(EngineError):
    """A checkpoint is missing, damaged, or of another architecture."""


class FaultError(EngineError):
    """A fault file is missing or breaks the fault contract."""


class InvalidRequest(EngineError):
    """A request cannot be served as it stands; the engine did nothing with it."""


class ContextOverflow(InvalidRequest):
    """Prompt and completion together need more tokens than the context holds."""

    def __init__(self, *, prompt_tokens: int, max_tokens: int, max_model_len: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.max_model_len = max_model_len
        super().__init__(
            f"This model's maximum context length is {max_model_len} tokens, but "
            f"{prompt_tokens + max_tokens} were requested ({prompt_tokens} in the prompt, "
            f"{max_tokens} for the completion); shorten the prompt or lower max_tokens."
        )


class QueueFull(EngineError):
    """As many requests wait as may wait."""

    def __init__(self, *, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(
            f"The request queue is full: {waiting} requests wait and the limit is {limit} "
            "(--max-queued-requests); retry later."
        )


class EngineStopped(EngineError):
    """The engine's thread has ended, so nothing more can be served."""
