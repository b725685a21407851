"""Models from their configurations: published sizes, FLOP by hand, and what is refused."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from roofline.errors import SourceError
from roofline.plan.catalogue import entries, load_model
from roofline.plan.configuration import read_configuration
from roofline.plan.transformer import Attention, Experts, FeedForward

# Billions of parameters, as the models' pages state them (safetensors totals, technical reports), to the digits they give.
PUBLISHED = {
    "llama2-7b": 6.738,
    "llama2-70b": 68.98,
    "llama3-8b": 8.030,
    "llama3-70b": 70.554,
    "llama3-405b": 405.85,
    "mistral-7b": 7.248,
    "mixtral-8x7b": 46.70,
    "mixtral-8x22b": 140.6,
    "qwen3-8b": 8.19,
    "qwen3-32b": 32.76,
    "qwen3-30b": 30.53,
    "qwen3-235b": 235.1,
    "deepseek-v3": 671.0,
    "gpt-oss-120b": 116.8,
    "gpt-oss-20b": 20.9,
    "kimi-k2": 1026.4,
    "mpt-7b": 6.65,
    "mpt-30b": 29.96,
    "gemma3-12b": 11.77,
    "nemotron3-nano": 31.6,
    "gpt3-175b": 174.6,
}
TINY = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 10,
}
TINY |= {"intermediate_size": 16}


def test_parameters_are_those_published() -> None:
    for name, billions in PUBLISHED.items():
        assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=2e-3), name


def test_llama_has_every_parameter_of_its_checkpoint() -> None:
    assert load_model("llama3-8b").parameters == 8_030_261_248
    assert load_model("llama3-70b").parameters == 70_553_706_496


def test_active_parameters_are_those_of_the_names() -> None:
    # Qwen3-235B-A22B, Qwen3-30B-A3B, Kimi K2 (32 G active), gpt-oss-120b (5.1 G), DeepSeek-V3 (37 G)
    for name, billions in {"qwen3-235b": 22, "qwen3-30b": 3, "kimi-k2": 32, "gpt-oss-120b": 5.1, "deepseek-v3": 37}.items():
        assert load_model(name).active_parameters / 1e9 == pytest.approx(billions, rel=0.03), name


def test_parameters_and_flop_of_a_tiny_model_by_hand() -> None:
    model = read_configuration(TINY, "tiny")
    # qkv 8 x (4 + 2·2)·2, out 8 x 8, up and gate 8 x 32, down 16 x 8, two norms of 8
    layer = 8 * 16 + 64 + 8 * 32 + 16 * 8
    assert model.parameters == 3 * (layer + 16) + 8 + 2 * 80
    # Forward: 2 per weight, the head 2·80, and scores and values of 6/2 keys: 2·3·4 heads·(2 + 2). Backward is twice forward.
    assert model.flops_per_token(6) == 3 * (3 * (2 * layer + 2 * 3 * 4 * 4) + 160)


def test_a_predictor_adds_a_layer_a_head_and_its_projection() -> None:
    without, predicting = load_model("deepseek-v3"), load_model("deepseek-v3-mtp")
    layer = without.layers[-1]
    own = layer.flops(7168, 4096) + 2 * 7168 * 129280 + 4 * 7168**2
    assert predicting.flops_per_token(4096) - without.flops_per_token(4096) == pytest.approx(3 * own)
    assert predicting.parameters == without.parameters


def test_windows_experts_and_latent_attention_are_read_layer_by_layer() -> None:
    windowed, full = load_model("gpt-oss-120b").layers
    assert (windowed.count, windowed.mixer) == (18, Attention(64, 8, 64, 128))
    assert full.mixer == Attention(64, 8, 64)
    dense, routed = load_model("deepseek-v3").layers
    assert (dense.count, dense.feed) == (3, FeedForward(18432))
    assert routed.feed == Experts(count=256, chosen=8, inner=2048, shared=2048)
    assert isinstance(routed.mixer, Attention)
    assert routed.mixer.kept == 512 + 64
    # Every fourth layer of Llama 4 sees all keys, every second one of Maverick routes.
    assert [(layer.count, type(layer.feed).__name__) for layer in load_model("llama4-maverick").layers] == [
        (24, "FeedForward"),
        (12, "Experts"),
        (12, "Experts"),
    ]
    state_space, experts, attention = load_model("nemotron3-nano").layers
    assert [layer.count for layer in (state_space, experts, attention)] == [23, 23, 6]
    assert state_space.feed is None
    assert experts.mixer is None


def test_a_window_saves_work_and_a_capacity_adds_it() -> None:
    whole = read_configuration(TINY, "tiny")
    windowed = read_configuration({**TINY, "sliding_window": 4}, "tiny")
    assert windowed.flops_per_token(64) < whole.flops_per_token(64)
    assert windowed.flops_per_token(4) == whole.flops_per_token(4)
    routed = {**TINY, "num_local_experts": 4, "num_experts_per_tok": 2}
    dropless, fixed = read_configuration(routed, "tiny"), read_configuration({**routed, "capacity_factor": 1.25}, "tiny")
    # a quarter more rows through three matrices of 8 x 16 of two experts, in 3 layers, forward and backward
    assert fixed.flops_per_token(8) - dropless.flops_per_token(8) == 3 * 3 * 2 * 2 * 0.25 * 3 * 8 * 16
    assert fixed.parameters == dropless.parameters


def test_attention_that_is_not_understood_is_refused_by_name() -> None:
    for key in (
        *("index_topk", "linear_attn_config", "linear_num_value_heads", "use_linear_attention", "lightning_heads", "sparse_attention"),
        *("blocksparse_block_size", "nsa_config", "moba_config", "sparsity_config", "compress_ratios", "lru_width", "rwkv_version"),
        *("attention_hidden_size", "conv_L_cache", "lsh_attn_chunk_length", "local_attention_window_size", "num_kv_shared_layers"),
        *("mamba_d_ssm", "mamba_dt_rank", "time_step_rank", "attn_type_list", "per_layer_config"),
    ):
        with pytest.raises(SourceError, match=f"{key}: .*not understood"):
            read_configuration({**TINY, key: [0, 1]}, "tiny")
        assert read_configuration({**TINY, key: None}, "tiny").depth == 3
    with pytest.raises(SourceError, match="'linear_attention' is not understood"):
        read_configuration({**TINY, "layer_types": ["full_attention", "linear_attention", "full_attention"]}, "tiny")
    with pytest.raises(SourceError, match="attention_type: attention of the kind 'block_sparse'"):
        read_configuration({**TINY, "attention_type": "block_sparse"}, "tiny")
    with pytest.raises(SourceError, match="both sides"):
        read_configuration({**TINY, "architectures": ["BertForMaskedLM"]}, "tiny")
    with pytest.raises(SourceError, match="no layer_types says which"):
        read_configuration({**TINY, "mamba_n_heads": 4}, "tiny")
    # the words of causal attention, and a list that says it of every layer (MiniMax M2)
    assert read_configuration({**TINY, "attn_type": "multihead_attention", "attn_type_list": [1, 1, 1]}, "tiny").depth == 3


def test_keys_that_a_type_leaves_out_or_calls_otherwise_are_read() -> None:
    # Gemma 3 12B's file has neither the width of a head nor which layers have the window: the sixth layer of six sees all keys.
    keys = {"hidden_size": 3840, "intermediate_size": 15360, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 48}
    model = read_configuration({**keys, "model_type": "gemma3_text", "sliding_window": 1024, "vocab_size": 262144}, "gemma3-12b")
    assert model.layers == load_model("gemma3-12b").layers
    # Qwen's window is that of the layers from max_window_layers on, where it is used.
    window = {"sliding_window": 4, "max_window_layers": 2}
    assert [layer.count for layer in read_configuration({**TINY, **window, "use_sliding_window": True}, "tiny").layers] == [2, 1]
    assert len(read_configuration({**TINY, **window, "use_sliding_window": False}, "tiny").layers) == 1
    # Billions of parameters that transformers gives models of these keys.
    dbrx = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352}
    dbrx |= {"attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}
    mamba = {"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64, "state_size": 128}
    mamba |= {"n_groups": 1, "time_step_rank": 160, "vocab_size": 50288, "tie_word_embeddings": True}
    bamba = {"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    bamba |= {"num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27], "vocab_size": 128256}
    bamba |= {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}
    falcon = {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024}
    falcon |= {"multi_query": True, "num_kv_heads": 71}
    for config, billions in ((dbrx, 131.6), (mamba, 2.702), (bamba, 9.78), (falcon, 6.922)):
        assert read_configuration(config, "model").parameters / 1e9 == pytest.approx(billions, rel=1e-3), config["model_type"]


def test_any_value_of_a_key_gives_a_model_or_an_error_of_the_file() -> None:
    routed = {**TINY, "num_local_experts": 4, "num_experts_per_tok": 2, "capacity_factor": 1.5, "sliding_window": 4, "layer_types": None}
    routed |= {"mlp_only_layers": [1], "hybrid_override_pattern": None, "architectures": ["XForCausalLM"], "kv_lora_rank": None}
    for key in routed:
        for value in (-1, 0, 1.5, "x", [], [1], ["x"], {}, {"a": 1}, True, 10**400, float("inf"), float("nan")):
            with suppress(SourceError):
                assert read_configuration({**routed, key: value}, "tiny").parameters > 0


def test_an_unknown_model_is_read_with_a_note_and_a_damaged_one_is_an_error() -> None:
    assert "not known" in read_configuration({**TINY, "model_type": "brandnew"}, "tiny").notes[0]
    nested = read_configuration({"model_type": "gemma3", "text_config": TINY, "vision_config": {"hidden_size": 3}}, "tiny")
    assert nested.parameters == read_configuration(TINY, "tiny").parameters
    for change, message in (
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers is 'many'"),
        ({"num_key_value_heads": 3}, "4 heads of queries cannot share 3"),
        ({"num_experts": 2, "num_experts_per_tok": 3}, "cannot choose 3 of 2"),
        ({"hybrid_override_pattern": "MX*"}, "letter 'X'"),
    ):
        with pytest.raises(SourceError, match=message):
            read_configuration({**TINY, **change}, "tiny")


def test_models_are_found_by_name_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert load_model(str(tmp_path)) == load_model(str(tmp_path / "config.json"))
    assert load_model("meta-llama/Llama-3.1-8B") == load_model("llama3-8b") == load_model("LLAMA3-8B")
    with pytest.raises(SourceError, match="did you mean 'llama3-8b'"):
        load_model("lama3-8b")
    with pytest.raises(SourceError, match="no such file"):
        load_model(str(tmp_path / "none" / "config.json"))
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(SourceError, match="not an object"):
        load_model(str(tmp_path))


def test_every_model_of_the_catalogue_can_be_planned_and_names_are_used_once() -> None:
    names = [name for entry in entries().values() for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names)) > 40
    for name in entries():
        model = load_model(name)
        assert model.flops_per_token(4096) > 6 * 0.9 * (model.active_parameters - model.embedding)
        assert model.notes == ()
