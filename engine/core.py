"""The engine: its parts by plain names, built in order, faults last, then a warm-up.

Parts look each other up through the engine at each call, so whoever replaces a part, or a method
of one, replaces it for everybody.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

import kernels
from engine.architecture import read_architecture
from engine.config import EngineConfig
from engine.dumps import ActivationDumps
from engine.errors import ConfigError
from engine.faults import install_fault, load_fault
from engine.model import Model
from engine.ownership import PageOwnership
from engine.pools import Pools, check_page_size
from engine.prefix_tree import PrefixTree
from engine.rotary import rotary_table
from engine.runner import Runner
from engine.sampler import Sampler
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest, Output, SamplingParams
from engine.statistics import Statistics
from engine.weights import load_weights

Role = Literal["all", "prefill", "decode", "router"]
DTYPES = {"float32": torch.float32}


class Engine:
    """One process that serves one model.

    Attributes:
        role: what this process does in a deployment; "all" here.
        ops, model, pools, prefix_tree, ownership, sampler, runner, scheduler, dumps: the core.
        tokenizer, encoder, parsers, server, metrics, request_log: set by the front end; None in an
            engine without one.
        max_model_len: most tokens of one sequence: the smallest of the flag, the model's own
            limit, and what the pools hold.
    """

    tokenizer: Any = None
    encoder: Any = None
    parsers: Any = None
    server: Any = None
    metrics: Any = None
    request_log: Any = None
    host_tier: Any = None
    transfer: Any = None

    def __init__(
        self, config: EngineConfig, *, front_end: "Callable[[Engine], None] | None" = None
    ) -> None:
        """Build everything; the scheduler's thread is not started yet.

        Args:
            config: flags.
            front_end: hangs the text parts onto the engine; called when the core stands, before
                faults are installed.

        Raises:
            ConfigError: flags that cannot work with this model or machine.
            CheckpointError: see `load_weights`.
            FaultError: a fault that cannot be loaded.
        """
        self.config = config
        self.role: Role = "all"
        faults = [load_fault(name) for name in config.faults]
        torch.set_num_threads(config.threads)
        self.device = find_device(config.device)
        self.architecture = read_architecture(config.model_path)
        check_page_size(self.architecture, config.page_size)
        self.max_model_len = self._longest()
        self.ops = self._bind()
        self.dumps = self._open_dumps()
        self._build_core()
        if front_end is not None:
            front_end(self)
        for fault in faults:
            install_fault(fault, self)
        self.warm_up()

    def start(self) -> None:
        """Start serving requests."""
        self.scheduler.start()

    def stop(self) -> None:
        """Abort what runs and stop."""
        self.scheduler.stop()

    def warm_up(self) -> None:
        """Run one small request through every path, then forget it.

        The first calls of libraries are slow and allocate; users should not wait for them.

        Raises:
            Exception: what the forward pass raised; a model that cannot compute must not serve.
        """
        prompt = [self.architecture.bos_token_id] * min(
            self.config.page_size + 3, self.max_model_len - 2
        )
        if not prompt:
            return
        dumps, self.dumps = self.dumps, None
        self.generate([prompt], SamplingParams(max_tokens=2, temperature=0.0))
        self.dumps = dumps
        if self.scheduler.last_failure is not None:
            raise self.scheduler.last_failure
        self.scheduler.flush_cache()
        self.scheduler.statistics = Statistics()
        for name in self.ops.calls:
            self.ops.calls[name] = 0

    def generate(
        self, prompts: list[list[int]], sampling: "SamplingParams | list[SamplingParams]"
    ) -> list[list[Output]]:
        """Run prompts to their ends in the calling thread; for tests, benchmarks and warm-up.

        Must not be used while the scheduler's thread runs.

        Returns: all outputs of each prompt, in order.
        """
        outputs: list[list[Output]] = [[] for _ in prompts]
        for index, prompt in enumerate(prompts):
            self.scheduler.submit(
                EngineRequest(
                    request_id=f"generate-{index}",
                    prompt_token_ids=prompt,
                    sampling=sampling[index] if isinstance(sampling, list) else sampling,
                    on_output=outputs[index].append,
                )
            )
        while self.scheduler.step():
            pass
        return outputs

    def _longest(self) -> int:
        config = self.config
        pages = config.max_total_tokens // config.page_size
        own = config.max_model_len or self.architecture.max_position
        if own > self.architecture.max_position:
            raise ConfigError(
                f"--max-model-len is {own}, but the model's positions end at "
                f"{self.architecture.max_position}."
            )
        return min(own, pages * config.page_size)

    def _bind(self) -> kernels.Ops:
        try:
            return kernels.bind(
                self.config.patches,
                device=self.device,
                dtype=DTYPES[self.config.dtype],
                settings=kernels.Settings(
                    index_topk=self.architecture.index_topk,
                    index_head_dim=self.architecture.index_head_dim,
                    head_dim=self.architecture.head_dim,
                    rope_dim=self.architecture.rope_dim,
                    implementation=self.config.kernels,
                ),
            )
        except (ValueError, RuntimeError) as error:
            # An unknown patch, a value that does not fit, or no compiler for the native ops.
            raise ConfigError(str(error)) from None

    def _open_dumps(self) -> ActivationDumps | None:
        folder = self.config.dump_activations
        if folder is None:
            return None
        return ActivationDumps(Path(folder), index_outlier=self.config.index_outlier)

    def _build_core(self) -> None:
        config, a = self.config, self.architecture
        weights = load_weights(
            config.model_path, a, self.device, index_outlier=config.index_outlier
        )
        rotary = tuple(
            rotary_table(rope, a.rope_dim, self.max_model_len, self.device)
            for rope in (a.rope, a.compress_rope)
        )
        self.model = Model(self, a, weights, rotary)  # type: ignore[arg-type]
        self.pools = Pools(
            self,
            a,
            page_size=config.page_size,
            num_pages=config.max_total_tokens // config.page_size,
            device=self.device,
        )
        self.prefix_tree = PrefixTree(self, page_size=config.page_size)
        self.ownership = PageOwnership(
            self, page_size=config.page_size, use_prefix_cache=not config.disable_prefix_cache
        )
        self.sampler = Sampler(self)
        self.runner = Runner(self, page_size=config.page_size, device=self.device)
        self.scheduler = Scheduler(self)


def find_device(name: str) -> torch.device:
    """Return the device of that name.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"--device is {name!r}, but must be cpu or cuda[:N].") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"--device is {name!r}, but must be cpu or cuda[:N].")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device is {name!r}, but torch sees no CUDA device here.")
    return device
