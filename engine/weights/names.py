"""What a tensor is called in a GGUF file, by its Hugging Face name. Plain strings, no files."""

import re

_GLOBAL = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_IN_LAYER_BACK = {gguf: hugging_face for hugging_face, gguf in _IN_LAYER.items()}
_GLOBAL_BACK = {gguf: hugging_face for hugging_face, gguf in _GLOBAL.items()}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")


def gguf_name(name: str) -> str | None:
    """The GGUF name of a Hugging Face name; None when there is no counterpart."""
    if name in _GLOBAL:
        return _GLOBAL[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _IN_LAYER:
        return None
    return f"blk.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"


def hugging_face_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF name; None for what transformers does not store (rope_freqs.weight)."""
    if name in _GLOBAL_BACK:
        return _GLOBAL_BACK[name]
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in _IN_LAYER_BACK:
        return None
    return f"model.layers.{match[1]}.{_IN_LAYER_BACK[match[2]]}.{match[3]}"
