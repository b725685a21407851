"""Models from a config.json, as Hugging Face's libraries write it: the keys that say how wide, deep and split a decoder is.

A key that names a kind of attention that is not understood is an error that names it: its time would be a guess. A ``model_type`` that
is not known is read by its keys, with a note.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import SourceError
from ..machines.toml_files import read_toml
from .transformer import Attention, Experts, FeedForward, Latent, Layer, Mixer, Model, StateSpace

_FILE = Path(__file__).with_name("model_types.toml")
_FULL, _WINDOWED = ("full_attention", "attention", "full"), ("sliding_attention", "chunked_attention", "sliding")
_LETTERS = {"M": "mamba", "E": "experts", "*": "attention", "-": "feed-forward"}
_BLOCKS = {"mamba": "mamba", "moe": "experts", "attention": "attention", "mlp": "feed-forward"}  # of nemotron_h, one part a layer
_SECTIONS = ("text_config", "language_config", "llm_config")
_PARTS = ("attn_config", "ffn_config")  # sections whose keys are the model's own
_ABSENT: tuple[object, ...] = (None, False, 0, "", "none", [], {})
_KINDS = ("attention_type", "attn_type", "attention_types")  # ends of keys that name a kind of attention
_CAUSAL = ("", "full", "causal", "softmax", "global", "mha", "mqa", "gqa", "mla", "multihead", "multiquery", "grouped_query")
MOST_LAYERS, MOST_NUMBER = 4096, 2**31


class ModelTypes(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of model types and keys: see `model_types.toml`."""

    known: frozenset[str]
    ungated: frozenset[str]
    tied: frozenset[str]
    usual: dict[str, dict[str, int]]
    not_understood: dict[str, str]


@cache
def model_types() -> ModelTypes:
    return read_toml(_FILE, ModelTypes)


def read_configuration(written: Mapping[str, Any], name: str, where: str = "") -> Model:
    """The model that the keys of a config.json describe; ``where`` is the file, for errors."""
    return _Reader(written, name, where or name).model()


class _Reader:
    """The keys of one configuration, the text part of it where it has several."""

    def __init__(self, written: Mapping[str, Any], name: str, where: str) -> None:
        self.name, self.where = name, where
        section = next((key for key in _SECTIONS if isinstance(written.get(key), Mapping)), None)
        self.notes: list[str] = []
        if section:
            self.notes.append(f"only its {section} is counted: vision and audio towers are left out")
            written = {**{key: value for key, value in written.items() if key not in _SECTIONS}, **written[section]}
        self.kind = str(written.get("model_type", "")).lower()
        inner = [written[key] for key in _PARTS if isinstance(written.get(key), Mapping)]
        self.keys = {key: value for part in (*inner, written) for key, value in part.items() if value is not None}
        self._refuse()
        self.keys = {**model_types().usual.get(self.kind, {}), **self.keys}
        if self.kind not in model_types().known:
            self.notes.append(f"model_type {self.kind or 'not stated'!r} is not known: read by its keys as a decoder of usual layers")
        self.hidden = self.number("hidden_size", "d_model", "n_embd")
        self.depth = self._depth()
        activation = str(self.optional("mlp_hidden_act", "hidden_act", "activation_function") or "")
        ungated = self.kind in model_types().ungated or activation in ("relu2", "xielu")
        self.gated = bool(self.keys.get("gated_mlp", not ungated))

    def wrong(self, message: str) -> SourceError:
        return SourceError(f"{self.where}: {message}")

    def _refuse(self) -> None:
        """Raise for a model whose time cannot be told from its keys."""
        for key, value in self.keys.items():
            if value not in _ABSENT and (what := self._not_understood(key, value)):
                raise self.wrong(f"{key}: {what}, which is not understood; a plan would be a guess")
        if self.keys.get("is_encoder_decoder"):
            raise self.wrong("is_encoder_decoder: only decoders are understood")
        if any(str(name).endswith("ForMaskedLM") for name in self.list_of("architectures")):
            raise self.wrong("architectures: attention to tokens on both sides, which is not understood; only decoders are")

    def _not_understood(self, key: str, value: Any) -> str | None:
        """The mixer that a key stands for, where it is not causal attention."""
        if key.endswith(_KINDS) and str(value).lower().replace("-", "_").removesuffix("attention").strip("_") not in _CAUSAL:
            return f"attention of the kind {str(value)[:40]!r}"
        if (self.kind == "mamba2" and key == "time_step_rank") or (
            key == "attn_type_list" and isinstance(value, list) and 0 not in value
        ):  # 1: softmax attention
            return None
        return next((what for pattern, what in model_types().not_understood.items() if re.search(pattern, key)), None)

    def _depth(self) -> int:
        names = "num_hidden_layers", "n_layers", "n_layer", "num_layers"
        depth = self.number(*names, default=len(self.list_of("layer_types", "layers_block_type"))) or self.number(*names)
        if depth > MOST_LAYERS:
            raise self.wrong(f"{depth} layers; a plan counts {MOST_LAYERS} at most")
        return depth

    def list_of(self, *names: str) -> list[Any]:
        """The list under the first of these keys that is there."""
        value = self.optional(*names)
        if value is not None and not isinstance(value, list):
            raise self.wrong(f"{next(key for key in names if key in self.keys)} is {str(value)[:40]!r}, not a list")
        return value or []

    def optional(self, *names: str) -> Any:
        return next((self.keys[key] for key in names if key in self.keys), None)

    def number(self, *names: str, default: int | None = None) -> int:
        """A whole number under the first of these keys that is there."""
        value = self.optional(*names)
        if value is None:
            if default is None:
                raise self.wrong(f"no {names[0]}; a config.json of a decoder has it")
            return default
        least = 0 if default is not None else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < MOST_NUMBER:
            key = next(key for key in names if key in self.keys)
            raise self.wrong(f"{key} is {str(value)[:40]!r}, not a whole number of {least} to 2^31")
        return value

    def model(self) -> Model:
        parts = [self._parts(index, word) for index, word in enumerate(self._words())]
        layers = tuple(Layer(count, *layer) for layer, count in Counter(parts).items())
        tied = self.optional("tie_word_embeddings")
        return Model(
            name=self.name,
            hidden=self.hidden,
            vocabulary=self.number("vocab_size", "padded_vocab_size"),
            layers=layers,
            tied=self.kind in model_types().tied if tied is None else bool(tied),
            predictors=self.number("num_nextn_predict_layers", default=0),
            notes=tuple(self.notes),
        )

    def _words(self) -> list[str]:
        """What each layer is: ``attention``, ``window``, ``mamba``; or one part alone, ``only …``."""
        if pattern := self.optional("hybrid_override_pattern"):
            unknown = sorted(set(str(pattern)) - set(_LETTERS))
            if unknown or len(str(pattern)) != self.depth:
                wrong = f"letter {unknown[0]!r}" if unknown else f"{len(str(pattern))} letters for {self.depth} layers"
                raise self.wrong(f"hybrid_override_pattern: {wrong}; the letters are {', '.join(f'{k} {v}' for k, v in _LETTERS.items())}")
            return [f"only {_LETTERS[letter]}" for letter in str(pattern)]
        has_states = self.optional("mamba_num_heads", "mamba_n_heads", *(["num_heads"] if self.kind == "mamba2" else []))
        types = self.list_of("layer_types", "layers_block_type")
        if types:
            return self._listed(types, bool(has_states))
        if self.kind == "mamba2":
            return ["only mamba"] * self.depth
        if self.kind == "bamba":
            attending = self.list_of("attn_layer_indices")
            return ["attention" if index in attending else "mamba" for index in range(self.depth)]
        if has_states:
            raise self.wrong("state-space layers, but no layer_types says which; a plan would be a guess")
        return ["window" if self._in_window(index) else "attention" for index in range(self.depth)]

    def _listed(self, types: list[Any], has_states: bool) -> list[str]:
        """What layers are by a list of their kinds."""
        if len(types) != self.depth:
            raise self.wrong(f"layer_types names {len(types)} layers of {self.depth}")
        words = {**dict.fromkeys(_FULL, "attention"), **dict.fromkeys(_WINDOWED, "window"), "mamba": "mamba"}
        if has_states:  # as transformers 5 writes them
            words["linear_attention"] = "mamba"
        if self.kind == "nemotron_h":
            words = {kind: f"only {_BLOCKS.get(word, word)}" for kind, word in {**words, "moe": "moe", "mlp": "mlp"}.items()}
        if unknown := sorted(set(map(str, types)) - set(words)):
            raise self.wrong(f"layer_types: {unknown[0]!r} is not understood; a plan would be a guess (known: {', '.join(words)})")
        return [words[str(kind)] for kind in types]

    def _in_window(self, index: int) -> bool:
        """Whether a layer sees a window of keys, where no list of layers says so."""
        if self.optional("attention_chunk_size"):
            return (index + 1) % self.number("no_rope_layer_interval", default=4) != 0
        if not self.optional("sliding_window") or self.keys.get("use_sliding_window") is False:
            return False
        if self.keys.get("use_sliding_window"):  # of Qwen
            return index >= self.number("max_window_layers", default=0)
        pattern = self.number("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", default=0)
        return not pattern or (index + 1) % pattern != 0

    def _parts(self, index: int, word: str) -> tuple[Mixer | None, FeedForward | Experts | None]:
        """The mixer and the feed-forward part of a layer."""
        alone = word.removeprefix("only ")
        mixer = self._mixer(alone)
        if alone == word:
            return mixer, self._experts() if self._routes(index) else self._feed_forward()
        if mixer:
            return mixer, None
        return None, self._experts() if alone == "experts" else self._feed_forward()

    def _mixer(self, word: str) -> Mixer | None:
        if word == "mamba":
            return self._state_space()
        if word == "window":
            return self._attention(self.number("sliding_window", "attention_chunk_size"))
        return self._attention() if word == "attention" else None

    def _attention(self, window: int = 0) -> Attention:
        heads = self.number("num_attention_heads", "n_heads", "n_head")
        if self.keys.get("multi_query") and not self.keys.get("new_decoder_architecture"):
            kv_heads = 1
        else:
            kv_heads = self.number("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads", default=heads) or heads
        if self.optional("kv_lora_rank"):
            latent = Latent(
                queries=self.number("q_lora_rank", default=0),
                keys=self.number("kv_lora_rank"),
                nope=self.number("qk_nope_head_dim"),
                rope=self.number("qk_rope_head_dim"),
                values=self.number("v_head_dim"),
            )
            return Attention(heads, heads, latent.nope + latent.rope, window, latent)
        dim = self.number("head_dim", default=0) or self.hidden // heads
        if not window:  # layers that see all keys may have heads of their own size (Gemma 4)
            dim = self.number("global_head_dim", default=dim)
            kv_heads = self.number("num_global_key_value_heads", default=kv_heads)
        if heads % kv_heads:
            raise self.wrong(f"{heads} heads of queries cannot share {kv_heads} heads of keys")
        return Attention(heads, kv_heads, dim, window)

    def _state_space(self) -> StateSpace:
        return StateSpace(
            self.number("mamba_num_heads", "mamba_n_heads", "num_heads"),
            self.number("mamba_head_dim", "mamba_d_head", "head_dim"),
            self.number("ssm_state_size", "mamba_d_state", "state_size"),
            self.number("n_groups", "mamba_n_groups", default=1),
        )

    def _routes(self, index: int) -> bool:
        """Whether the feed-forward part of a layer is a mixture of experts."""
        if not self._count_of_experts() or index in self.list_of("mlp_only_layers"):
            return False
        if kinds := self.list_of("mlp_layer_types"):
            return len(kinds) > index and kinds[index] != "dense"
        dense = self.number("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0)
        every = self.number("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1)
        return index >= dense and (index + 1) % max(every, 1) == 0

    def _count_of_experts(self) -> int:
        return self.number("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", default=0)

    def _feed_forward(self) -> FeedForward:
        ratio = self.number("expansion_ratio", default=4)
        inner = self.number(
            "intermediate_size_mlp",
            "shared_intermediate_size",
            "intermediate_size",
            "n_inner",
            "ffn_hidden_size",
            "ffn_dim",
            default=ratio * self.hidden,
        )
        return FeedForward(inner, self.gated)

    def _experts(self) -> Experts:
        inner = self.number("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size", "ffn_dim")
        shared = self.number("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", default=0) * inner
        if self.kind == "llama4_text":
            shared = inner
        experts = Experts(
            count=self._count_of_experts(),
            chosen=self.number(
                "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts", "moe_top_k", "moe_k"
            ),
            inner=inner,
            shared=self.number(
                "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size", default=shared
            ),
            gated=self.gated,
            latent=self.number("moe_latent_size", default=0),
            capacity=self._capacity(),
        )
        if experts.chosen > experts.count:
            raise self.wrong(f"a token cannot choose {experts.chosen} of {experts.count} experts")
        return experts

    def _capacity(self) -> float:
        """Rows computed over rows routed, where experts take a fixed number."""
        value = self.optional("capacity_factor", "moe_expert_capacity_factor")
        if isinstance(value, bool | None):
            return 1.0
        if not isinstance(value, int | float) or not value < MOST_NUMBER:
            raise self.wrong(f"capacity_factor is {str(value)[:40]!r}, not a number")
        return max(1.0, float(value))
