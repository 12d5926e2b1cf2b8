"""What a deployment allows: floods that fill its pool, and its dtype."""

from types import SimpleNamespace

from fidelity.fuzz.abilities import can_of, declared_dtype, flood_lines, pool_tokens


def test_floods_fill_the_pool_that_the_server_tells():
    assert pool_tokens({"internal_states": [{"max_total_num_tokens": 4096}]}) == 4096
    assert pool_tokens({"max_total_tokens": 8192}) == 8192
    assert pool_tokens({"max_total_tokens": True, "internal_states": "x"}) is None
    half, most = flood_lines(4096)
    assert half * 26 <= 2048
    assert 0.8 * 4096 < most * 26 <= 4096
    assert flood_lines(1_000_000) == ()
    assert len(flood_lines(None)) == 1


def test_weights_of_few_bits_do_not_loosen_the_arms_of_one_server():
    deployment = SimpleNamespace(
        capabilities=SimpleNamespace(get=lambda name: None, dialect="vllm"), server_info={}
    )

    def dtype(declared):
        return can_of(deployment, SimpleNamespace(allow=(), dtype=declared)).dtype

    assert [dtype(name) for name in ("int4", "nvfp4", "fp8")] == ["bfloat16"] * 3
    assert [dtype(name) for name in ("float16", "float32")] == ["float16", "float32"]


def test_a_dtype_that_nobody_knows_is_none():
    assert declared_dtype({"dtype": "float32"}) == "float32"
    assert declared_dtype({"dtype": "auto"}) is None
    assert declared_dtype({"dtype": 7}) is None
