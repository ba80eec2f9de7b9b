"""What the memory plan reserves for a step, against what the tensors of a step really take at their worst moment."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.requests import Request, SamplingParams
from engine.target import activation_bytes
from engine.weights import random as random_weights
from tests.fakes.live_bytes import LiveBytes

SLOTS, VOCAB = 16, 50_000
# A small body under a large vocabulary, where the logits and what the sampler makes of them are the peak.
THIN = replace(
    random_weights.SHAPES["qwen3-0.6b"], num_layers=2, hidden_size=64, intermediate_size=128, num_heads=4,
    num_kv_heads=2, head_dim=16, vocab_size=VOCAB,
)  # fmt: skip
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0},
    "nearly all": {"temperature": 2.0, "top_p": 0.9999},
    "everything": {
        "temperature": 1.0, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1,
        "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": ((5, 1.0),), "logprobs": 5,
    },
}  # fmt: skip


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    monkeypatch.setitem(random_weights.SHAPES, "thin", THIN)
    return EngineConfig(
        random_weights="thin", device="cpu", dtype="float32", threads=1, num_kv_blocks=200, max_model_len=512,
        max_num_seqs=SLOTS, max_num_batched_tokens=256,
    )  # fmt: skip


@pytest.mark.parametrize("name", SAMPLINGS)
def test_6_a_full_step_stays_within_what_is_planned_for_it(config: EngineConfig, name: str) -> None:
    """All slots sample at once, in every way there is."""
    live = LiveBytes()
    with closing(Engine.load(config)) as engine:
        for number in range(SLOTS):
            prompt = tuple((number * 7 + at) % VOCAB for at in range(15 + number))
            sampling = SamplingParams(seed=number, max_tokens=4, ignore_eos=True, **SAMPLINGS[name])
            engine.submit(Request(request_id=str(number), token_ids=prompt, sampling=sampling))
        with live:
            while engine.has_work:
                engine.step()
    logits_bytes = SLOTS * VOCAB * torch.float32.itemsize
    assert logits_bytes <= live.peak_bytes, "the logits of all slots are among them"
    assert live.peak_bytes <= activation_bytes(config, THIN, torch.float32)


def test_6_what_is_planned_counts_every_slot_and_token(config: EngineConfig) -> None:
    planned = activation_bytes(config, THIN, torch.float32)
    twice = activation_bytes(replace(config, max_num_seqs=2 * SLOTS), THIN, torch.float32)
    assert twice - planned >= SLOTS * VOCAB * torch.float32.itemsize
    assert activation_bytes(replace(config, max_num_batched_tokens=512), THIN, torch.float32) > planned
