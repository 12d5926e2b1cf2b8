"""What an engine is started with: one frozen object, filled from flags alone.

Nothing in the engine reads the environment, so this object is the whole truth about a process.
"""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from engine.errors import ConfigError

KERNELS = ("auto", "native", "torch")
DTYPES = ("float32",)
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Flags of `python -m engine serve`, in their final form.

    Sizes are in tokens unless the name says otherwise. `None` means "the checkpoint decides".
    """

    model: str
    """Folder of a checkpoint in the Hugging Face layout."""
    host: str = "127.0.0.1"
    port: int = 30000
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    """Threads of torch on the CPU. More than one collapses where anything else runs."""
    page_size: int = 64
    """A multiple of every compression rate of the model."""
    max_total_tokens: int = 98304
    """Capacity of the paged pools."""
    chunk_tokens: int = 256
    """Most tokens of one forward pass; longer prompts are prefilled in chunks.

    On the CPU 512 reads 5 % faster, and makes every decoding request wait twice as long.
    """
    max_running_requests: int = 32
    max_queued_requests: int = 256
    max_model_len: int | None = None
    max_request_bytes: int = 8 << 20
    api_key_env: str | None = None
    """Name of the variable that holds the API key; the key itself is never a flag."""
    served_model_name: str = "nano"
    patches: tuple[str, ...] = ()
    """NAME or NAME=VALUE, as given to `kernels.bind`."""
    faults: tuple[str, ...] = ()
    """Names in engine/faults/, or paths of fault files."""
    kernels: Literal["auto", "native", "torch"] = "auto"
    index_outlier: float | None = None
    """Exact reparametrisation of the indexer at load: channel 0 of its keys times this factor."""
    dump_activations: str | None = None
    """Folder for one safetensors file a request."""
    log_requests: bool = False
    log_requests_level: int = 2
    log_requests_format: Literal["text", "json"] = "text"
    log_requests_target: str = "stdout"
    default_thinking: bool = False
    disable_prefix_cache: bool = False
    seed: int = 0
    """Seeds requests that bring no seed of their own, in order of arrival."""

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigError: a value outside its range, with the flag, the value and the range.
        """
        for name in _AT_LEAST_ONE:
            _require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        _require(
            self.max_queued_requests >= 0,
            "max_queued_requests",
            self.max_queued_requests,
            "an integer >= 0",
        )
        _require(0 <= self.port <= 65535, "port", self.port, "0 to 65535")
        _require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        _require(self.kernels in KERNELS, "kernels", self.kernels, f"one of {', '.join(KERNELS)}")
        _require(
            self.log_requests_format in LOG_FORMATS,
            "log_requests_format",
            self.log_requests_format,
            f"one of {', '.join(LOG_FORMATS)}",
        )
        _require(
            self.max_model_len is None or self.max_model_len >= 1,
            "max_model_len",
            self.max_model_len,
            "an integer >= 1",
        )
        _require(
            self.max_total_tokens >= self.page_size,
            "max_total_tokens",
            self.max_total_tokens,
            f"at least one page of {self.page_size} tokens",
        )
        if self.index_outlier is not None:
            exact = self.index_outlier > 0 and math.frexp(self.index_outlier)[0] == 0.5
            _require(
                exact,
                "index_outlier",
                self.index_outlier,
                "a power of two, so that the logits stay equal to the bit",
            )

    @property
    def model_path(self) -> Path:
        """The checkpoint folder."""
        return Path(self.model)

    def as_dict(self) -> dict[str, object]:
        """Every flag by its name, for `/server_info`; faults are left out on purpose."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "faults"}


_AT_LEAST_ONE = (
    "threads",
    "page_size",
    "chunk_tokens",
    "max_running_requests",
    "max_request_bytes",
)


def _require(condition: bool, name: str, value: object, wanted: str) -> None:
    if not condition:
        flag = "--" + name.replace("_", "-")
        raise ConfigError(f"{flag} is {value!r}, but must be {wanted}.")
