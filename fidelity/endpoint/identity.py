"""Who is answering: a server's identity, and the epochs that a restart or a new version opens.

Several replicas behind one URL answer with several identities: all that were seen when the
deployment was opened belong to epoch 0. A new one afterwards opens the next epoch.
"""

from collections.abc import Mapping
from typing import Any

_INFO_KEYS = (
    "version",
    "engine_version",
    "instance_id",
    "pid",
    "start_time",
    "started_at",
    "build_info",
    "model_path",
    "weight_version",
)

_STARTED = "process_start_time_seconds"
_PROCESS_KEYS = frozenset({"instance_id", "pid", "start_time", "started_at", _STARTED})


def tells_process(answer: Mapping[str, Any]) -> bool:
    """True when an answer, server info or metrics, differs between any two processes."""
    return not _PROCESS_KEYS.isdisjoint(answer)


def identity_of(
    *, version: str, info: Mapping[str, Any], metrics: Mapping[str, float], model: str
) -> str:
    """Return a text that changes with a restart or a new version, and with nothing else."""
    parts = [f"model={model}"]
    if version and "version" not in info:
        parts.append(f"version={version}")
    parts += [f"{key}={info[key]}"[:200] for key in _INFO_KEYS if key in info]
    started = metrics.get(_STARTED)
    if started is not None:
        parts.append(f"started={started:.2f}")
    return " ".join(parts)


class Epochs:
    """Counts epochs from identities; the caller says when the known set is complete."""

    def __init__(self) -> None:
        """Start in epoch 0, nothing known."""
        self.epoch = 0
        self.known: set[str] = set()
        self.reasons: list[str] = []
        self._settled = False

    def learn(self, identity: str) -> None:
        """Add an identity that belongs to the present epoch (while a deployment is opened)."""
        self.known.add(identity)

    def settle(self) -> None:
        """From now on an unknown identity opens an epoch."""
        self._settled = True

    def observe(self, identity: str) -> bool:
        """Note who answers now; return True when that opens a new epoch."""
        if identity in self.known:
            return False
        if not self._settled:
            self.known.add(identity)
            return False
        before = ", ".join(sorted(self.known))
        self.reasons.append(f"epoch {self.epoch + 1}: {identity} instead of {before}")
        self.known = {identity}
        self.epoch += 1
        return True
