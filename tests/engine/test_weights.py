"""Loading checkpoints, and refusing those that cannot be run."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.architecture import read_architecture
from engine.errors import CheckpointError, ConfigError
from engine.rotary import inverse_frequencies, rotary_table
from engine.sequence import SamplingParams

PROMPT = torch.randint(2, 199, (200,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture
def copy(tiny_checkpoint, tmp_path):
    """A copy of the tiny checkpoint that may be damaged."""
    folder = tmp_path / "copy"
    shutil.copytree(tiny_checkpoint, folder)
    return folder


def edit_config(folder, **changes) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def test_the_nano_checkpoint_is_what_its_config_says(nano_checkpoint) -> None:
    a = read_architecture(nano_checkpoint)
    written = json.loads((nano_checkpoint / "config.json").read_text())
    assert (a.num_layers, a.hidden_size, a.head_dim, a.rope_dim) == (5, 256, 128, 32)
    assert list(a.layer_kinds) == written["layer_types"]
    rates = written["compress_rates"]
    assert a.csa_rate == rates["compressed_sparse_attention"] == 4
    assert a.hca_rate == rates["heavily_compressed_attention"] == a.largest_rate
    assert a.hash_layers == (True, False, False, False, False)
    # two numbers: an engine that mixes them up must not look right
    assert (a.rms_norm_eps, a.hc_eps) == (written["rms_norm_eps"], written["hc_eps"])
    assert a.rms_norm_eps != a.hc_eps
    assert a.eos_token_ids == (1,)


def test_published_configs_are_read_in_their_flat_form(tmp_path, tiny_checkpoint) -> None:
    nested = json.loads((tiny_checkpoint / "config.json").read_text())
    flat = {
        k: v
        for k, v in nested.items()
        if k not in ("rope_parameters", "layer_types", "mlp_layer_types", "compress_rates")
    }
    flat |= {
        "compress_ratios": [128, 4, 0, 4, 128, 0],
        "num_hash_layers": 2,
        "rope_scaling": {
            "type": "yarn",
            "factor": 16,
            "original_max_position_embeddings": 65536,
            "beta_fast": 32,
            "beta_slow": 1,
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(flat))
    a = read_architecture(tmp_path)
    assert a.layer_kinds[0] == "heavily_compressed_attention"
    assert a.layer_kinds[2] == "sliding_attention"
    assert (a.csa_rate, a.hca_rate) == (4, 128)
    assert a.hash_layers == (True, True, False, False, False)
    assert (a.compress_rope.factor, a.compress_rope.original_max_position) == (16.0, 65536)
    assert (a.rope.theta, a.compress_rope.theta, a.rope.factor) == (10000.0, 160000.0, 1.0)


def test_rotary_frequencies_are_blended_at_every_position(nano_checkpoint) -> None:
    a = read_architecture(nano_checkpoint)
    plain = inverse_frequencies(a.rope, a.rope_dim)
    yarn = inverse_frequencies(a.compress_rope, a.rope_dim)
    unscaled = 160000.0 ** (-torch.arange(0, 32, 2) / 32)
    assert plain[0] == 1.0
    assert plain[1] == pytest.approx(10000 ** (-2 / 32))
    ratio = (yarn / unscaled).tolist()
    # Channel pairs up to 3 keep their frequency, from 8 on it is divided by 16, a ramp between.
    assert ratio[:4] == pytest.approx([1.0] * 4)
    assert ratio[8:] == pytest.approx([1 / 16] * 8)
    assert all(1 / 16 < r < 1 for r in ratio[4:8])
    table = rotary_table(a.rope, a.rope_dim, 10, torch.device("cpu"))
    assert table.cos.shape == (10, 16)
    assert table.sin[3, 0] == pytest.approx(torch.sin(torch.tensor(3.0)).item())


@pytest.mark.parametrize("factor", [256.0, 0.5])
def test_an_index_outlier_changes_the_keys_and_no_logit(make_engine, driver, factor) -> None:
    plain, outlier = make_engine(), make_engine(index_outlier=factor)
    rows = [driver(engine).logits(PROMPT, chunk=64) for engine in (plain, outlier)]
    assert torch.equal(*rows)
    for layer, kind in enumerate(plain.architecture.layer_kinds):
        if kind != "compressed_sparse_attention":
            continue
        keys = [e.pools.layers[layer].index_keys.codes for e in (plain, outlier)]
        assert torch.equal(keys[0][..., 0] * factor, keys[1][..., 0])
        assert keys[0][..., 0].abs().max() > 0
        assert torch.equal(keys[0][..., 1:], keys[1][..., 1:])


def test_an_outlier_must_be_exact(make_engine) -> None:
    with pytest.raises(ConfigError, match=r"--index-outlier is 100\.0, but must be a power of two"):
        make_engine(index_outlier=100.0)


def test_an_outlier_needs_a_channel_that_is_not_rotated(copy, make_engine) -> None:
    edit_config(copy, index_head_dim=8)
    tensors = load_file(copy / "model.safetensors")
    for layer in (1, 3):
        name = f"model.layers.{layer}.self_attn.compressor.indexer"
        for part in ("kv_proj.weight", "gate_proj.weight"):
            tensors[f"{name}.{part}"] = tensors[f"{name}.{part}"][:16].contiguous()
        tensors[f"{name}.position_bias"] = tensors[f"{name}.position_bias"][:, :16].contiguous()
        tensors[f"{name}.kv_norm.weight"] = tensors[f"{name}.kv_norm.weight"][:8].contiguous()
        tensors[f"{name}.q_b_proj.weight"] = tensors[f"{name}.q_b_proj.weight"][:256].contiguous()
    save_file(tensors, copy / "model.safetensors")
    make_engine(model=str(copy))
    with pytest.raises(CheckpointError, match="all 8 channels are rotated"):
        make_engine(model=str(copy), index_outlier=2.0)


def test_sharded_checkpoints_are_the_same_model(copy, make_engine, driver) -> None:
    whole = driver(make_engine()).logits(PROMPT[:70])
    tensors = load_file(copy / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({n: tensors[n] for n in part}, copy / file)
    index = {"weight_map": {n: file for file, part in shards.items() for n in part}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    (copy / "model.safetensors").unlink()
    assert torch.equal(driver(make_engine(model=str(copy))).logits(PROMPT[:70]), whole)


def test_tied_embeddings_need_no_head(copy, make_engine) -> None:
    edit_config(copy, tie_word_embeddings=True)
    engine = make_engine(model=str(copy))
    assert engine.model.weights.lm_head is engine.model.weights.embed
    assert engine.generate([PROMPT], SamplingParams(max_tokens=1))[0][-1].completion_tokens == 1


def test_a_missing_folder_is_one_sentence(make_engine, tmp_path) -> None:
    with pytest.raises(CheckpointError, match=r"There is no checkpoint folder .*nowhere"):
        make_engine(model=str(tmp_path / "nowhere"))


def test_a_folder_without_config_or_weights_is_named(copy, make_engine) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not exist"):
        make_engine(model=str(copy))
    (copy / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        make_engine(model=str(copy))


@pytest.mark.parametrize("kept", [0, 7, 1000, -1])
def test_a_truncated_file_is_refused(copy, make_engine, kept) -> None:
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged or cut off"):
        make_engine(model=str(copy))


def test_another_architecture_is_refused_by_name(copy, make_engine) -> None:
    edit_config(copy, model_type="llama")
    with pytest.raises(CheckpointError, match="type 'llama'; this engine runs 'deepseek_v4' only"):
        make_engine(model=str(copy))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scoring_func": "sigmoid"}, "scoring_func to 'sigmoid'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised weights"),
        ({"hidden_size": None}, "no key 'hidden_size'"),
        ({"hidden_size": "wide"}, "cannot be used"),
        ({"hidden_size": 97}, r"shape \(199, 96\), but its config.json asks for \(199, 97\)"),
        ({"n_routed_experts": 7}, "asks for"),
        ({"layer_types": ["full_attention"] * 5}, "cannot be used"),
        ({"vocab_size": 200}, r"asks for \(200, 96\)"),
    ],
)
def test_configs_that_do_not_fit_are_refused(copy, make_engine, changes, sentence) -> None:
    edit_config(copy, **changes)
    with pytest.raises(CheckpointError, match=sentence):
        make_engine(model=str(copy))


def test_a_config_that_is_no_json_is_refused(copy, make_engine) -> None:
    (copy / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        make_engine(model=str(copy))


def test_a_missing_tensor_is_named(copy, make_engine) -> None:
    tensors = load_file(copy / "model.safetensors")
    del tensors["model.layers.1.self_attn.sinks"]
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.layers\.1\.self_attn\.sinks'"):
        make_engine(model=str(copy))


def test_a_hash_table_of_foreign_experts_is_refused(copy, make_engine) -> None:
    tensors = load_file(copy / "model.safetensors")
    tensors["model.layers.0.mlp.gate.tid2eid"][7, 1] = 6
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match="names experts 0 to 6, but the model has 6"):
        make_engine(model=str(copy))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"page_size": 24}, "--page-size is 24, but must be a multiple of 16"),
        ({"page_size": 0}, "--page-size is 0"),
        ({"max_total_tokens": 10}, "at least one page of 64 tokens"),
        ({"max_model_len": 5000}, "positions end at 4096"),
        ({"device": "tpu"}, "--device is 'tpu'"),
        ({"dtype": "float16"}, "--dtype is 'float16'"),
        ({"patches": ("indexkeys",)}, "unknown patch 'indexkeys'; did you mean 'index_keys'"),
        ({"patches": ("index_topk=none",)}, "index_topk"),
    ],
)
def test_flags_that_cannot_work_are_refused(make_engine, flags, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_engine(**flags)


def test_cuda_is_refused_where_there_is_none(make_engine) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ConfigError, match="torch sees no CUDA device"):
        make_engine(device="cuda")
