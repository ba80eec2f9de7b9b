"""Tokenizers that several tests share. transformers needs seconds for the starter's, so it is read once."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.tiny_tokenizer import byte_level_fields, save_fields, sentence_piece_fields


@pytest.fixture(scope="session")
def starter_tokenizer(starter_gguf: Path) -> Tokenizer:
    return load_tokenizer(starter_gguf)


@pytest.fixture(scope="session")
def starter_reference(starter_gguf: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(starter_gguf.parent, gguf_file=starter_gguf.name)


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(save_fields(tmp_path_factory.mktemp("bytes") / "tiny.gguf", byte_level_fields()))


@pytest.fixture(scope="session")
def piece_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(save_fields(tmp_path_factory.mktemp("pieces") / "tiny.gguf", sentence_piece_fields()))
