"""What the front end needs of an engine: satisfied by the real one and by the echo engine."""

from typing import TYPE_CHECKING, Any, Protocol

from engine.config import EngineConfig
from engine.encoding import ChatEncoder
from engine.parsers import Parsers
from engine.sequence import EngineRequest
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # both read what a Generation measured, and a Generation has a Scheduler
    from engine.metrics import Metrics
    from engine.request_log import RequestLog


class Scheduler(Protocol):
    """A scheduler as the server sees it. All methods may be called from any thread."""

    def submit(self, request: EngineRequest) -> None:
        """Queue a request. Raises: QueueFull, ContextOverflow, InvalidRequest."""

    def abort(self, request_id: str) -> bool:
        """End a request with finish_reason "abort"; False: no such request."""

    def abort_all(self) -> int:
        """Abort every request; how many there were."""

    def finish(self, request_id: str) -> bool:
        """End a request whose text is complete; False: no such request."""

    def flush_cache(self) -> bool:
        """Forget all cached prefixes; False, and nothing done, while requests run."""

    def gauges(self) -> dict[str, float]:
        """Loads and sizes by their SGLang names without the prefix; totals end in `_total`."""

    def start(self) -> None:
        """Start the scheduler's thread."""

    def stop(self) -> None:
        """Abort everything and end the thread."""


class Ops(Protocol):
    """The bound kernels as the server sees them."""

    def patch_states(self) -> list[dict[str, Any]]:
        """Every known patch: name, state, calls, value."""

    def default_thinking(self) -> bool:
        """Whether patch default_thinking makes a chat think that does not say."""


class EngineParts(Protocol):
    """An engine by its parts. Looked up at each call, so that a part may be replaced."""

    config: EngineConfig
    max_model_len: int
    scheduler: Scheduler
    ops: Ops
    tokenizer: Tokenizer
    encoder: ChatEncoder
    parsers: Parsers
    metrics: "Metrics"
    request_log: "RequestLog"
    server: Any
