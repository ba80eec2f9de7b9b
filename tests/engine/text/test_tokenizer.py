"""Tokens against transformers on the starter, and against brute force on tiny vocabularies."""

import json
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.errors import ModelError
from engine.text.pre_tokenizers import pre_tokenization
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.tiny_tokenizer import byte_level_fields, save_fields, sentence_piece_fields

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two leading spaces and a trailing tab\t",
    "def f(x):\n    if x % 2 == 0:\n        return x // 2\n\n\treturn 3 * x + 1  # Collatz\n",
    'for (int i = 0; i < 1024; ++i) { printf("%d\\n", i); }',
    "0 1 12 123 1234567890 3.14159 1,000,000 0x1F 2024-02-29",
    "I'm you're we've he'll she'd they'RE isn't 'quoted'",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "삼겹살 👩‍👩‍👧 ďábel 世界",
    "日本語のテキスト、漢字とカナ。",
    "мир שלום سلام नमस्ते",
    "🦙🦙 🇨🇿 👍🏽 ❤️",
    "a\u0301 e\u0308 combining, \u200b zero width, \ufeff mark, \u00a0 no-break",
    "line one\r\nline two\n\n\n\n   \n line three",
    "<|im_start|>user\nnot a control token<|im_end|> <|endoftext|><filename>",
    "www.example.org/path?query=1&other=2#fragment user@example.org",
    "\x00\x01\x7f control characters",
    "x" * 500,
    " " * 100,
]

# The converter in transformers leaves out this vocabulary's first rule, by which every digit stands alone; only digits
# beyond ASCII show it (they have a test of their own).
plain_text = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Nd", "Nl", "No"]) | st.sampled_from("0159")
)


def plain_ids(reference: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(reference.encode(text, add_special_tokens=False, split_special_tokens=True))


@pytest.mark.starter
@pytest.mark.parametrize("text", TEXTS)
def test_starter_encodes_as_transformers(
    starter_tokenizer: Tokenizer, starter_reference: PreTrainedTokenizerBase, text: str
) -> None:
    ids = starter_tokenizer.encode(text)
    assert ids == plain_ids(starter_reference, text)
    assert starter_tokenizer.encode_with_control(text) == starter_reference.encode(text, add_special_tokens=False)
    assert starter_tokenizer.decode(ids) == text
    assert starter_tokenizer.token_count(text) == len(ids)


@pytest.mark.starter
@settings(max_examples=200)
@given(text=plain_text)
def test_starter_encodes_any_text_as_transformers(
    starter_tokenizer: Tokenizer, starter_reference: PreTrainedTokenizerBase, text: str
) -> None:
    assert starter_tokenizer.encode(text) == plain_ids(starter_reference, text)


@pytest.mark.starter
def test_every_digit_stands_alone(starter_tokenizer: Tokenizer) -> None:
    for digits in ("1234", "١٢٣", "Ⅻ½²"):
        alone = [number for digit in digits for number in starter_tokenizer.encode(digit)]
        assert starter_tokenizer.encode(digits) == alone


@pytest.mark.starter
def test_starter_knows_its_tokens(starter_tokenizer: Tokenizer) -> None:
    assert (starter_tokenizer.bos_token_id, starter_tokenizer.eos_token_id) == (1, 2)
    assert starter_tokenizer.vocab_size == 49152
    assert starter_tokenizer.encode_with_control("<|im_start|>a<|im_end|>")[::2] == [1, 2]
    assert starter_tokenizer.is_control(2)
    assert not starter_tokenizer.is_control(100)
    assert starter_tokenizer.token_text(1) == "<|im_start|>"
    assert len(starter_tokenizer.control_tokens) == 17
    assert not starter_tokenizer.adds_bos
    assert "<|im_start|>" in (starter_tokenizer.chat_template or "")


@pytest.mark.starter
def test_folder_and_file_give_the_same_tokens(
    starter_tokenizer: Tokenizer, starter_reference: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    starter_reference.save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.chat_template == starter_tokenizer.chat_template
    assert tokenizer.control_tokens == starter_tokenizer.control_tokens
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.adds_bos) == (1, 2, False)
    for text in TEXTS:
        assert tokenizer.encode(text) == starter_tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def write_folder(folder: Path, reference: PreTrainedTokenizerBase, config: dict[str, Any]) -> Path:
    reference.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize(
    ("config", "adds_bos", "template"),
    [
        ({}, False, None),
        ({"add_bos_token": True}, True, None),
        ({"bos_token": {"content": "<|begin|>"}, "add_bos_token": True}, True, None),
        ({"bos_token": None, "add_bos_token": True}, False, None),
        ({"chat_template": "one"}, False, "one"),
        ({"chat_template": [{"name": "tool", "template": "a"}, {"name": "default", "template": "b"}]}, False, "b"),
    ],
)
def test_folder_settings(tmp_path: Path, config: dict[str, Any], adds_bos: bool, template: str | None) -> None:
    save_fields(tmp_path / "tiny.gguf", byte_level_fields())
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    tokenizer = load_tokenizer(write_folder(tmp_path / "folder", reference, config))
    assert tokenizer.adds_bos == adds_bos
    assert tokenizer.chat_template == template
    assert tokenizer.encode_prompt("a") == [0] * adds_bos + tokenizer.encode("a")
    (tmp_path / "folder" / "chat_template.jinja").write_text("from a file")
    assert load_tokenizer(tmp_path / "folder").chat_template == "from a file"


def test_bos_of_a_post_processor_counts(tmp_path: Path) -> None:
    save_fields(tmp_path / "tiny.gguf", byte_level_fields(ggml__add_bos_token=True))
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    folder = write_folder(tmp_path / "folder", reference, {"add_bos_token": None})
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode_prompt("The dog") == reference.encode("The dog")
    assert tokenizer.encode_prompt("The dog")[0] == 0


@pytest.mark.parametrize("pre", ["llama-bpe", "tekken", "qwen2", "gpt-2"])
def test_text_is_cut_as_transformers_cuts_it(tmp_path: Path, pre: str) -> None:
    save_fields(tmp_path / "tiny.gguf", byte_level_fields(pre=pre))
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf").backend_tokenizer.pre_tokenizer
    ours = pre_tokenization(pre).pre_tokenizer

    @settings(max_examples=200)
    @given(st.text())
    def check(text: str) -> None:
        assert ours.pre_tokenize_str(text) == reference.pre_tokenize_str(text)

    check()
    for text in TEXTS:
        assert ours.pre_tokenize_str(text) == reference.pre_tokenize_str(text)


def test_the_default_cut_goes_rule_by_rule() -> None:
    """A file that names no rule: each pattern cuts what the one before has left, as ggml does it."""
    patterns = [
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ]
    ours = pre_tokenization("default").pre_tokenizer
    for text in TEXTS:
        pieces = [text]
        for pattern in patterns:
            pieces = [part for piece in pieces for part in regex.split(f"({pattern})", piece) if part]
        offsets = [end - start for _, (start, end) in ours.pre_tokenize_str(text)]
        assert offsets == [len(piece) for piece in pieces]


def brute_force_pieces(fields: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's rule itself: join the neighbours that make the best token until none do."""
    tokens, scores = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"]
    numbers = {token: number for number, token in enumerate(tokens)}
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joins = [
            (-scores[numbers[left + right]], at)
            for at, (left, right) in enumerate(pairwise(parts))
            if left + right in numbers
        ]
        if not joins:
            break
        at = min(joins)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    ids: list[int] = []
    for part in parts:
        ids += [numbers[part]] if part in numbers else [numbers[f"<0x{byte:02X}>"] for byte in part.encode()]
    return ids


@given(text=st.text() | st.text("Thequickbrown fox▁ lazydg<>/s\n"))
def test_sentence_piece_equals_brute_force(piece_tokenizer: Tokenizer, text: str) -> None:
    assert piece_tokenizer.encode(text) == brute_force_pieces(sentence_piece_fields(), text)


def test_sentence_piece_encodes_as_transformers(tmp_path: Path) -> None:
    save_fields(tmp_path / "tiny.gguf", sentence_piece_fields())
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    tokenizer = load_tokenizer(tmp_path / "tiny.gguf")
    assert tokenizer.adds_bos
    for text in TEXTS:
        # transformers spells a space at the very beginning otherwise: one, where SentencePiece has two.
        if text and not text.startswith(" "):
            assert tokenizer.encode_prompt(text) == reference.encode(text, split_special_tokens=True)
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentence_piece_without_a_prefix(tmp_path: Path) -> None:
    fields = sentence_piece_fields(ggml__add_space_prefix=False, ggml__add_bos_token=False)
    tokenizer = load_tokenizer(save_fields(tmp_path / "tiny.gguf", fields))
    assert not tokenizer.adds_bos
    assert tokenizer.decode(tokenizer.encode(" the dog")) == " the dog"
    assert tokenizer.token_text(tokenizer.encode("the")[0])[0] == "t"


def test_typed_control_tokens_stay_text(byte_tokenizer: Tokenizer, piece_tokenizer: Tokenizer) -> None:
    for tokenizer in (byte_tokenizer, piece_tokenizer):
        text = "".join(sorted(tokenizer.control_tokens))
        assert not any(map(tokenizer.is_control, tokenizer.encode(text)))
        assert all(map(tokenizer.is_control, tokenizer.encode_with_control(text)))
        assert tokenizer.decode(tokenizer.encode(text)) == text
        ids = tokenizer.encode_with_control(text)
        assert tokenizer.decode(ids) == ""
        assert tokenizer.decode(ids, skip_special=False) == text


def test_user_defined_tokens_are_always_whole(tmp_path: Path) -> None:
    fields = byte_level_fields()
    fields["tokenizer.ggml.tokens"].append("<think> it")
    fields["tokenizer.ggml.token_type"].append(4)
    tokenizer = load_tokenizer(save_fields(tmp_path / "tiny.gguf", fields))
    assert tokenizer.encode("<think> it") == [320]
    assert tokenizer.decode([320]) == "<think> it"


def test_halves_of_utf16_pairs_do_no_harm(byte_tokenizer: Tokenizer) -> None:
    assert byte_tokenizer.encode("a\ud83d\ude00b") == byte_tokenizer.encode("a\U0001f600b")
    assert byte_tokenizer.encode("a\ud83d b") == byte_tokenizer.encode("a\ufffd b")


def test_ids_outside_the_vocabulary_have_no_text(byte_tokenizer: Tokenizer) -> None:
    assert byte_tokenizer.decode([-1, 5000, 2**40]) == ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ggml__model": "t5"}, "a tokenizer of the kind 't5'"),
        ({"ggml__pre": "klingon"}, "cuts text by the rule 'klingon'"),
        ({"ggml__model": None}, "no field tokenizer.ggml.model"),
        ({"ggml__tokens": None}, "no field tokenizer.ggml.tokens"),
        ({"ggml__merges": None}, "no field tokenizer.ggml.merges"),
        ({"ggml__merges": ["not there"]}, "contradicts itself"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    path = save_fields(tmp_path / "tiny.gguf", byte_level_fields(**changes))
    with pytest.raises(ModelError, match=sentence):
        load_tokenizer(path)


def test_broken_folders_have_their_sentences(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no file or folder"):
        load_tokenizer(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be read as a tokenizer"):
        load_tokenizer(tmp_path)


def test_an_unknown_decoder_is_named(tmp_path: Path) -> None:
    save_fields(tmp_path / "tiny.gguf", byte_level_fields())
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    folder = write_folder(tmp_path / "folder", reference, {})
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text()) | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"in a way that is not known here \(WordPiece\)"):
        load_tokenizer(folder)


def test_two_threads_with_a_tokenizer_each(tmp_path: Path) -> None:
    path = save_fields(tmp_path / "tiny.gguf", byte_level_fields())
    failures: list[BaseException] = []

    def work() -> None:
        try:
            tokenizer = load_tokenizer(path)
            for number in range(1000):
                text = f"<|end|> dog {number}"
                assert tokenizer.decode(tokenizer.encode(text)) == text
                assert tokenizer.encode_with_control(text)[0] == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_neither_torch_nor_transformers_is_imported() -> None:
    code = (
        "import sys, engine.text.tokenizer, engine.text.chat_template, engine.text.detokenizer; "
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
