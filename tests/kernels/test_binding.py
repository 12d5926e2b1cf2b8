"""From patch names to ops: what is on, what ran, what is refused."""

import pytest
import torch

from kernels import PATCHES, NativeUnavailable, PatchUnsupported, Settings, UnknownPatch, bind
from kernels.native import build

SOURCE = '__attribute__((visibility("default"))) int k(void) { return %d; }\n'
NAMES = [
    *("index_keys", "index_topk", "mhc_bf16", "moe_routed_scaling", "nvfp4_experts"),
    *("mxfp4_experts", "swiglu_clamp", "fp8_kv", "indexer_triton", "splitk_decode"),
    "default_thinking",
]
SETTINGS = Settings(index_topk=32, index_head_dim=64, implementation="torch")


def bind_torch(*patches):
    return bind(patches, device="cpu", dtype=torch.float32, settings=SETTINGS)


def states(ops):
    return {s["name"]: (s["state"], s["calls"], s["value"]) for s in ops.patch_states()}


def test_the_table_lists_every_patch_on_or_off():
    off = states(bind_torch())
    assert list(off) == [patch.name for patch in PATCHES] == NAMES
    assert off.pop("index_keys") == ("off", 0, "fp32")
    assert off.pop("index_topk") == ("off", 0, "32")
    assert set(off.values()) == {("off", 0, "off")}
    on = bind_torch("index_topk=64", "index_keys=int4,row,rotate")
    assert states(on) == states(bind_torch()) | {
        "index_keys": ("on", 0, "int4,row,rotate"),
        "index_topk": ("on", 0, "64"),
    }
    assert on.index_topk == 64
    assert on.index_keys.format.rotate


def test_the_value_of_the_baseline_is_off():
    ops = bind_torch("index_keys=fp32", "index_topk=32")
    assert {state for state, _, _ in states(ops).values()} == {"off"}


def test_each_call_is_counted_on_its_own_ops(randn):
    first, second = bind_torch(), bind_torch()
    for _ in range(3):
        first.linear(randn(1, 4), randn(2, 4))
    assert first.calls["linear"] == 3
    assert sum(first.calls.values()) == 3
    assert sum(second.calls.values()) == 0
    assert set(first.calls) >= {"index_select", "index_keys.store", "sparse_attention", "mhc_pre"}


@pytest.mark.parametrize("implementation", ["torch", "native"])
def test_a_patch_that_is_on_proves_that_it_ran(bound, ragged, randn, implementation):
    ops = bound(implementation, "index_keys=bf16", "index_topk=2")
    layout = ragged.scattered([16], 16)
    batch = layout.batch([(0, 0, 16)])
    storage = ops.index_keys.allocate(layout.pages, 4, 32, "cpu")
    at = (torch.zeros(4, dtype=torch.int32), torch.arange(4, dtype=torch.int32))
    ops.index_keys.store(storage, randn(4, 32), *at, 4, batch)
    for _ in range(2):
        ops.index_select(
            randn(16, 3, 32), randn(16, 3), storage, m=4, topk=ops.index_topk, batch=batch
        )
    on = {name: state for name, state in states(ops).items() if state[0] == "on"}
    assert on == {"index_keys": ("on", 1, "bf16"), "index_topk": ("on", 2, "2")}


def test_a_kernel_counts_its_own_runs_and_is_absent_when_off(randn):
    on, off = bind_torch("mhc_bf16"), bind_torch("mhc_bf16=off")
    arguments = (randn(2, 4, 8), randn(24, 32), randn(24), randn(3))
    for ops in (on, off):
        ops.mhc_pre(*arguments, rms_eps=1e-6, hc_eps=1e-6, iters=2)
    assert states(on)["mhc_bf16"] == ("on", 1, "on")
    assert states(off)["mhc_bf16"] == ("off", 0, "off")
    assert "patch.mhc_bf16" not in off.calls


def test_an_op_can_be_replaced_on_one_instance(randn):
    ops = bind_torch()
    original = ops.rms_norm
    ops.rms_norm = lambda x, weight, eps: original(x, weight, eps) * 2
    x = randn(2, 4)
    assert torch.equal(ops.rms_norm(x, None, 1e-6), 2 * original(x, None, 1e-6))
    assert bind_torch().rms_norm(x, None, 1e-6).equal(original(x, None, 1e-6))


def test_an_unknown_patch_names_the_closest():
    with pytest.raises(
        UnknownPatch, match=r"unknown patch 'index_key'; did you mean 'index_keys'\?"
    ):
        bind_torch("index_key=int4")
    with pytest.raises(UnknownPatch, match=r"Known: default_thinking, .*index_keys, index_topk"):
        bind_torch("x" * 500)


@pytest.mark.parametrize(
    ("patches", "words"),
    [
        (["index_topk=0"], "index_topk is not supported here: value '0'"),
        (["index_topk"], "value ''"),
        (["index_topk=-3"], "value '-3'"),
        (["index_topk=9999999999"], "accepted: 1..262144"),
        (["index_topk=٣"], "value '٣'"),
        (["index_keys"], "format ''"),
        (["index_keys=int4", "index_keys=fp8"], "asked for twice, as 'int4' and 'fp8'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(patches, words):
    with pytest.raises(PatchUnsupported, match=words):
        bind_torch(*patches)


def test_implementations_are_chosen_in_words():
    def choose(name, dtype=torch.float32, device="cpu"):
        settings = Settings(index_topk=1, index_head_dim=32, implementation=name)
        return bind([], device=device, dtype=dtype, settings=settings).implementation

    assert choose("auto") == "native"
    assert choose("auto", torch.bfloat16) == "torch"
    assert choose("auto", device="cuda") == "torch"
    assert choose("torch") == "torch"
    with pytest.raises(
        ValueError, match=r"implementation: got 'fast'; accepted: auto, native, torch"
    ):
        choose("fast")
    with pytest.raises(ValueError, match=r"native with torch.float32 on cuda"):
        choose("native", device="cuda")


def test_without_a_compiler_the_error_names_the_way_on(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    settings = Settings(index_topk=1, index_head_dim=32)
    with pytest.raises(NativeUnavailable, match=r"none of cc, gcc, clang.*--kernels torch"):
        bind([], device="cpu", dtype=torch.float32, settings=settings)


def test_a_compiler_that_fails_says_why_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "flags", lambda: ("-no-such-flag",))
    with pytest.raises(NativeUnavailable, match=r"failed with exit code 1.*no-such-flag"):
        build.load_library(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_library_is_compiled_once_and_again_when_a_source_changes(monkeypatch, tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "a.c").write_text(SOURCE % 1)
    monkeypatch.setattr(build, "SOURCES", sources)
    cache = tmp_path / "cache"
    cache.mkdir()
    assert build.load_library(cache).k() == 1
    (made,) = cache.iterdir()
    stamp = made.stat().st_mtime_ns
    build.load_library(cache)
    assert [p.stat().st_mtime_ns for p in cache.iterdir()] == [stamp]
    (sources / "a.c").write_text(SOURCE % 2)
    assert build.load_library(cache).k() == 2


def test_code_is_loaded_only_from_a_folder_of_this_user_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(build.Path, "home", classmethod(lambda _: tmp_path / "home"))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path))
    shared = tmp_path / "home" / ".cache" / "fidelity-kernels"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    folder = build._private_folder()
    assert folder.parent == tmp_path
    folder.chmod(0o777)
    with pytest.raises(NativeUnavailable, match=r"only this user can write"):
        build._private_folder()
