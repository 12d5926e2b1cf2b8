"""A fault for the acceptance run: normal noise on every logit, so that no two requests agree."""

from typing import Any

import torch
from torch import Tensor

NAME = "noisy_logits"
KIND = "precision"
RUNG = "drift"
REPORT = "https://github.com/vllm-project/vllm/issues/53257"
TRIGGER = "any request"
PATCH = None
SUITES = {"test_twins_phases"}
DEVIATION = 0.1


def install(engine: Any) -> None:
    """Wrap `model.logits`."""
    logits = engine.model.logits

    def noisy(hidden: Tensor) -> Tensor:
        exact: Tensor = logits(hidden)
        return exact + DEVIATION * torch.randn_like(exact)

    engine.model.logits = noisy
