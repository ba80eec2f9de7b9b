"""Tokenizers of a few hundred tokens, as the metadata fields of a GGUF file.

They can stand in a file of their own, or be the `extra` of `tiny_llama.save_gguf` for a whole tiny model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CONTROL_TOKENS = ("<|begin|>", "<|end|>", "<|user|>", "<|user_end|>")
CORPUS = (
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs, said the old man.\n"
    "def main():\n    return [number for number in range(10) if number % 2]\n"
    "Přílišžluťoučkýkůňúpěl ďábelské ódy. 世界 你好。Grüße aus Köln! 1234 5678\n"
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def byte_level_fields(*, pre: str = "gpt-2", num_merges: int = 60, **changes: Any) -> dict[str, Any]:
    """A byte-level BPE: four control tokens, 256 bytes, merges learned from a short corpus; 320 tokens by default.

    `changes` replace or add keys below "tokenizer."; dots are written as two underscores.
    """
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + num_merges, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    learner.train_from_iterator([CORPUS], trainer)
    vocabulary = learner.get_vocab()
    tokens = [*CONTROL_TOKENS, *sorted(vocabulary, key=vocabulary.__getitem__)]
    merges = [f"{left} {right}" for left, right in (_merge_parts(token, vocabulary) for token in tokens[260:])]
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * 4 + [NORMAL] * (len(tokens) - 4),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
    return fields | _keys(changes)


def _merge_parts(token: str, vocabulary: Mapping[str, int]) -> tuple[str, str]:
    """One way to make a token of two that came before it."""
    for cut in range(1, len(token)):
        left, right = token[:cut], token[cut:]
        if vocabulary.get(left, 1 << 30) < vocabulary[token] and vocabulary.get(right, 1 << 30) < vocabulary[token]:
            return left, right
    raise AssertionError(token)


def sentence_piece_fields(*, num_merges: int = 60, **changes: Any) -> dict[str, Any]:
    """A SentencePiece BPE with byte fallback: scores fall with rank, as SentencePiece's trainer writes them."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    characters = sorted(set(CORPUS.replace(" ", "▁").replace("\n", "")) - set("世界你好ůďň"))
    trainer = trainers.BpeTrainer(
        vocab_size=len(characters) + num_merges,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
        min_frequency=1,
    )
    learner.train_from_iterator(CORPUS.split("\n"), trainer)
    vocabulary = learner.get_vocab()
    learned = sorted(vocabulary, key=vocabulary.__getitem__)
    merged = [token for token in learned if len(token) > 1]
    single = [token for token in learned if len(token) == 1]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *single]
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(rank) for rank in range(len(tokens) - 259)],
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return fields | _keys(changes)


def _keys(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"tokenizer.{key.replace('__', '.')}": value for key, value in changes.items()}


def save_fields(path: Path, fields: Mapping[str, Any]) -> Path:
    """A GGUF file with these fields and no tensors; None leaves a key out."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in fields.items():
        match value:
            case None:
                continue
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case str():
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
