"""Kernels that are wrong only at a large model's shapes are convicted there."""

import pytest

from tests.patches.test_broken_twins import Twin, convicted

LARGE = "test_shapes_of_the_large_model"
CUT_PRODUCT = (
    "linear(x.bfloat16().float(), stored.values[expert])",
    "linear(x.bfloat16().float()[:, :1024], stored.values[expert][:, :1024])",
)
TWINS = [
    Twin("splitk_decode", "keys beyond six splits are dropped", "range(0, rows.shape[1], SPLIT)",
         "range(0, min(rows.shape[1], 6 * SPLIT), SPLIT)", LARGE, options={"selected": True}),
    Twin("splitk_decode", "keys beyond eighteen splits are dropped",
         "range(0, rows.shape[1], SPLIT)", "range(0, min(rows.shape[1], 18 * SPLIT), SPLIT)", LARGE,
         options={"selected": False}),
    Twin("splitk_decode", "channels past 128 are dropped", "rows = rows.bfloat16().float()",
         "rows = torch.cat((rows[..., :128], 0 * rows[..., 128:]), -1).bfloat16().float()", LARGE,
         options={"selected": True}),
    Twin("indexer_triton", "the selection stops at 256", "return select_top(scores, visible, topk)",
         "made = select_top(scores, visible, min(topk, 256))\n"
         "    return torch.nn.functional.pad(made, (0, topk - made.shape[1]), value=-1)",
         LARGE, ("bf16",)),
    Twin("indexer_triton", "only 32 heads are scored", "torch.relu(keys @ q.T) @ weights",
         "torch.relu(keys @ q[:32].T) @ weights[:32]", LARGE, ("fp8",)),
    Twin("indexer_triton", "entries past 4,096 are not scored", "visible.tolist()",
         "visible.clamp(max=4096).tolist()", LARGE, ("fp4",)),
    Twin("moe_routed_scaling", "only the first 128 experts are considered", "ids = ranked.sort(",
         "ids = ranked[:, :128].sort(", LARGE),
    Twin("mxfp4_experts", "channels past 1,024 are dropped", *CUT_PRODUCT, LARGE, (), "fp4.py"),
    Twin("nvfp4_experts", "channels past 1,024 are dropped", *CUT_PRODUCT, LARGE, (), "fp4.py"),
    Twin("swiglu_clamp", "channels past 1,024 are not clamped",
         "if limit is not None and limit > 0:",
         "if limit is not None and limit > 0 and gate.shape[1] <= 1024:", LARGE),
    Twin("fp8_kv", "rows past the 64th are not rounded",
         'made = torch.where(finite, made, float("nan")).flatten(1)',
         'made = torch.where(finite, made, float("nan")).flatten(1)\n'
         "    made[64:] = groups.flatten(1)[64:]",
         "test_rows_of_the_large_model"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.patch}: {twin.fault}")
def test_a_twin_that_is_wrong_at_large_shapes_is_convicted(twin, break_kernel, examine):
    convicted(twin, break_kernel, examine)
