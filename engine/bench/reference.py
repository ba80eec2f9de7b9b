"""transformers on the same weights: the figure that ours stands beside."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from engine.architecture import ModelArchitecture
from engine.weights.source import WeightSource


class TransformersReference:
    """A dense copy of a model in transformers, with its own `generate` and padded batches."""

    name = "transformers"

    def __init__(self, weights: WeightSource, dtype: torch.dtype) -> None:
        from transformers import LlamaForCausalLM

        with tempfile.TemporaryDirectory(prefix="kvscope-bench-") as folder:
            _save_dense(weights, dtype, Path(folder))
            self._model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype)
        self._model.train(mode=False)
        self._model.generation_config.eos_token_id = None

    def generate(self, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
        """Greedy continuation of prompts of equal length."""
        with torch.inference_mode():
            ids = self._model.generate(
                torch.tensor(prompts), max_new_tokens=max(lengths), do_sample=False, pad_token_id=0
            )
        new_tokens: list[list[int]] = ids[:, len(prompts[0]) :].tolist()
        return new_tokens


def _save_dense(weights: WeightSource, dtype: torch.dtype, folder: Path) -> None:
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM(llama_config(weights.architecture))
    model = model.to(dtype)
    names = [name for name in model.state_dict() if not (name == "lm_head.weight" and _is_tied(weights))]
    model.load_state_dict({name: weights.tensor(name, dtype) for name in names}, strict=False)
    model.tie_weights()
    model.save_pretrained(folder)


def _is_tied(weights: WeightSource) -> bool:
    return weights.architecture.tie_word_embeddings


def llama_config(architecture: ModelArchitecture) -> Any:
    """The configuration of the same model for transformers."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        num_key_value_heads=architecture.num_kv_heads,
        head_dim=architecture.head_dim,
        rms_norm_eps=architecture.rms_norm_eps,
        rope_parameters={"rope_theta": architecture.rope_theta, "rope_type": "default"},
        max_position_embeddings=architecture.max_position_embeddings,
        attention_bias=architecture.attention_bias,
        mlp_bias=architecture.mlp_bias,
        tie_word_embeddings=architecture.tie_word_embeddings,
    )
