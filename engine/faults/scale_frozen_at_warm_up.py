"""Window rows are clipped to what the warm-up had, once the scale of the cache counts as settled.

The scale is measured on the synthetic first request and put into use behind a number of requests,
when calibration is over. A fresh server is exact; from then on large values are cut off.
"""

from typing import Any

from torch import Tensor

NAME = "scale_frozen_at_warm_up"
KIND = "quant"
RUNG = "drift"
REPORT = "https://github.com/kekzl/imp/pull/89"
TRIGGER = "more than 128 requests were served since the start"
PATCH = None
SUITES = {"test_twins_life"}
# The twin of a server's life begins with its first requests and ends behind 200 more. It comes
# first in a run: all other twins lie behind the change with both arms.
TWINS = {"aged"}
REQUESTS = 128


def install(engine: Any) -> None:
    """Wrap the op `store_window`: the first call of each layer is the warm-up's."""
    store = engine.ops.store_window
    most: dict[int, float] = {}

    def store_clipped(pool: Tensor, rows: Tensor, *args: Any, **options: Any) -> None:
        limit = most.setdefault(pool.data_ptr(), float(rows.abs().max()))
        if engine.scheduler.statistics.requests > REQUESTS:
            rows = rows.clamp(-limit, limit)
        store(pool, rows, *args, **options)

    engine.ops.store_window = store_clipped
