"""What a model's makers say about sampling, as values that SamplingParams takes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from engine.errors import ModelError
from engine.requests import SamplingParams
from engine.weights.generation_defaults import (
    GenerationDefaults,
    defaults_from_config,
    defaults_from_metadata,
    read_generation_defaults,
)
from tests.fakes.tiny_tokenizer import byte_level_fields, save_fields


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"temperature": None, "top_k": None}, {}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),
        (
            {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
            {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
        ),
        ({"min_p": 0.05}, {"min_p": 0.05}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.0}),
        ({"do_sample": False, "repetition_penalty": 1.1}, {"temperature": 0.0, "repetition_penalty": 1.1}),
        ({"temperature": 0, "top_k": 0}, {"temperature": 0, "top_k": 0}),
        ({"temperature": 5.0, "top_p": 0, "top_k": -1, "min_p": 2, "repetition_penalty": 0}, {}),
        ({"temperature": "warm", "top_p": True, "top_k": 2.5, "min_p": [0.1]}, {}),
    ],
)
def test_what_is_stated(config: dict[str, Any], expected: dict[str, float]) -> None:
    assert defaults_from_config(config).stated() == expected


def test_what_transformers_writes_is_read(tmp_path: Path) -> None:
    GenerationConfig(do_sample=True, temperature=0.6, top_k=20, top_p=0.95).save_pretrained(tmp_path)
    found = read_generation_defaults(tmp_path)
    assert found == GenerationDefaults(temperature=0.6, top_k=20, top_p=0.95)
    assert SamplingParams(temperature=0.6, top_k=20, top_p=0.95, seed=1) == SamplingParams(seed=1, **found.stated())


def test_a_folder_may_say_nothing(tmp_path: Path) -> None:
    assert read_generation_defaults(tmp_path) == GenerationDefaults()
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(ModelError, match="holds no JSON object"):
        read_generation_defaults(tmp_path)


def test_a_file_says_it_in_its_header(tmp_path: Path) -> None:
    path = save_fields(tmp_path / "plain.gguf", byte_level_fields())
    assert read_generation_defaults(path) == GenerationDefaults()
    fields = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.5}
    found = defaults_from_metadata(fields)
    assert found == GenerationDefaults(temperature=0.6, top_k=20, repetition_penalty=1.5)


ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
NAMES = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@given(st.dictionaries(st.sampled_from(NAMES), ANY))
def test_whatever_is_stated_can_be_sampled_with(config: dict[str, Any]) -> None:
    stated = defaults_from_config(json.loads(json.dumps(config))).stated()
    known = {name for name in stated if name in SamplingParams.__dataclass_fields__}
    SamplingParams(**{name: stated[name] for name in known})
