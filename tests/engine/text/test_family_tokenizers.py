"""Tokenizers of every family, as a folder that transformers wrote and as a GGUF file, against transformers.

The vocabularies are tiny; the rules (how text is cut, where spaces and BOS go, what is a control token) are whole.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from transformers import LlamaTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer

from engine.text.gguf_tokenizer import merges_by_score
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.engine.text.test_tokenizer import TEXTS
from tests.fakes.tiny_tokenizer import byte_level_fields, save_fields, sentence_piece_fields

# As the Llama 3 release states it.
LLAMA3_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PROMPT = "<|begin|>{}<|user_end|>\n<|user|>{}<|user_end|>"


@dataclass(frozen=True)
class Pair:
    """One tokenizer by transformers and by us, from the folder and from a file with the same vocabulary."""

    reference: PreTrainedTokenizerBase
    folder: Tokenizer
    file: Tokenizer


def make_pair(reference: PreTrainedTokenizerBase, fields: dict[str, Any], path: Path) -> Pair:
    reference.save_pretrained(path)
    save_fields(path / "tiny.gguf", fields)
    return Pair(reference, load_tokenizer(path), load_tokenizer(path / "tiny.gguf"))


def byte_level(fields: dict[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]], list[str]]:
    """Vocabulary, merges, and control tokens."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    return {token: number for number, token in enumerate(tokens)}, merges, tokens[:4]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Qwen2, 2.5 and 3: no BOS, digits stand alone, text is composed (NFC); "<think>" is a token but no control."""
    fields = byte_level_fields(pre="qwen2", ggml__add_bos_token=False)
    vocabulary, merges, control = byte_level(fields)
    thought = "<think>"
    reference = Qwen2Tokenizer(vocab=dict(vocabulary), merges=merges, eos_token=control[1], unk_token=control[0],
                               pad_token=control[0])  # fmt: skip
    reference.add_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    reference.add_tokens([AddedToken(thought, special=False, normalized=False)])
    fields["tokenizer.ggml.tokens"].append(thought)
    fields["tokenizer.ggml.token_type"].append(4)
    return make_pair(reference, fields, tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def llama3(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Llama 3: BOS by the post-processor, digits in threes, whole pieces without merging."""
    fields = byte_level_fields(pre="llama-bpe", ggml__add_bos_token=True)
    vocabulary, merges, control = byte_level(fields)
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    cut = pre_tokenizers.Split(Regex(LLAMA3_CUT), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    backend.post_processor = processors.TemplateProcessing(single=f"{control[0]} $A", special_tokens=[(control[0], 0)])
    reference = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=control[0], eos_token=control[1])
    return make_pair(reference, fields, tmp_path_factory.mktemp("llama3"))


def pieces(fields: dict[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokens, scores = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return vocabulary, list(merges_by_score(tokens, scores, vocabulary))


@pytest.fixture(scope="module", params=["Llama's own class", "a file of before Metaspace"])
def sentence_piece(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Llama 2, TinyLlama and Mistral: byte fallback, a space before the text, BOS."""
    fields = sentence_piece_fields()
    vocabulary, merges = pieces(fields)
    if request.param == "Llama's own class":
        reference = LlamaTokenizer(vocab=vocabulary, merges=merges, add_bos_token=True)
    else:
        backend = tokenizers.Tokenizer(
            models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        )
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        control = [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
        backend.add_special_tokens(control)
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        reference = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    return make_pair(reference, fields, tmp_path_factory.mktemp("pieces"))


def check_plain(pair: Pair, text: str) -> None:
    expected = pair.reference.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert pair.folder.encode(text) == expected
    assert pair.file.encode(text) == expected
    assert pair.folder.encode_prompt(text) == pair.reference.encode(text, split_special_tokens=True)
    assert pair.file.encode_prompt(text) == pair.folder.encode_prompt(text)


def check_control(pair: Pair, text: str) -> None:
    expected = pair.reference.encode(text, add_special_tokens=False)
    assert pair.folder.encode_with_control(text) == expected
    assert pair.file.encode_with_control(text) == expected


@pytest.mark.parametrize("family", ["qwen", "llama3"])
def test_byte_level_families(family: str, request: pytest.FixtureRequest) -> None:
    pair: Pair = request.getfixturevalue(family)
    composed = family == "qwen"
    for text in TEXTS:
        check_plain(pair, text)
        check_control(pair, PROMPT.format(text, text))
        ids = pair.folder.encode(text)
        decoded = pair.reference.decode(ids, clean_up_tokenization_spaces=False)
        assert pair.folder.decode(ids) == pair.file.decode(ids) == decoded
        assert composed or decoded == text


@settings(max_examples=100)
@given(text=st.text())
def test_qwen_encodes_any_text_as_transformers(qwen: Pair, text: str) -> None:
    check_plain(qwen, text)


@settings(max_examples=100)
@given(text=st.text())
def test_llama3_encodes_any_text_as_transformers(llama3: Pair, text: str) -> None:
    check_plain(llama3, text)


def test_byte_level_families_know_their_tokens(qwen: Pair, llama3: Pair) -> None:
    assert [(each.adds_bos, each.eos_token_id) for each in (qwen.folder, qwen.file)] == [(False, 1)] * 2
    assert [(each.adds_bos, each.bos_token_id) for each in (llama3.folder, llama3.file)] == [(True, 0)] * 2
    for pair in (qwen, llama3):
        assert pair.folder.control_tokens == pair.file.control_tokens == set(pair.reference.all_special_tokens) | {
            "<|begin|>", "<|end|>", "<|user|>", "<|user_end|>",
        }  # fmt: skip


def test_a_thought_is_a_token_and_text(qwen: Pair) -> None:
    for tokenizer in (qwen.folder, qwen.file):
        ids = tokenizer.encode_with_control("<think>")
        assert len(ids) == 1
        assert not tokenizer.is_control(ids[0])
        assert tokenizer.decode(ids) == "<think>"


def test_composed_and_decomposed_letters_are_one_for_qwen(qwen: Pair) -> None:
    for tokenizer in (qwen.folder, qwen.file):
        assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")


def test_sentence_piece_families(sentence_piece: Pair) -> None:
    for text in TEXTS:
        # Where a text begins with a space, Llama's class drops one, and SentencePiece itself has two.
        if text and not text.startswith(" "):
            check_plain(sentence_piece, text)
            ids = sentence_piece.folder.encode(text)
            assert sentence_piece.folder.decode(ids) == sentence_piece.file.decode(ids) == text


def test_sentence_piece_families_know_their_tokens(sentence_piece: Pair) -> None:
    for tokenizer in (sentence_piece.folder, sentence_piece.file):
        assert (tokenizer.adds_bos, tokenizer.bos_token_id, tokenizer.eos_token_id) == (True, 1, 2)
        assert tokenizer.control_tokens == {"<unk>", "<s>", "</s>"}
        assert tokenizer.encode_with_control("</s>") == [2]
        assert tokenizer.token_text(tokenizer.encode("世")[-1]) != ""


@settings(max_examples=100)
@given(text=st.text(min_size=1).filter(lambda text: not text.startswith((" ", "▁"))))
def test_sentence_piece_streams_any_text(sentence_piece: Pair, text: str) -> None:
    """Bytes of single tokens add up to the text, in whatever pieces it came."""
    for tokenizer in (sentence_piece.folder, sentence_piece.file):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text.replace("▁", " ")
