"""The engine on a card, with random weights of a real shape, against transformers in float32 on the same weights."""

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from engine.bench.reference_config import reference_classes, reference_config
from engine.config import EngineConfig
from engine.llm import LLM
from engine.runner.cuda_graphs import ladder
from engine.runner.sampler import Sampled, Sampler
from engine.scheduling.sequence import Sequence
from engine.weights.random import RandomWeights

SHAPE = "qwen3-0.6b"
TOLERANCE = 2e-2  # of the logits' norm
LENGTHS = (1, 15, 16, 17, 255, 256, 257, 4095, 30_000)
NEW_TOKENS = 12
VOCABULARY = 10_000


@pytest.fixture(scope="module")
def reference() -> torch.nn.Module:
    weights = RandomWeights(SHAPE)
    _, model_class = reference_classes(weights.architecture)
    model = model_class(reference_config(weights.architecture)).to("cuda", torch.float32)
    names = [name for name in model.state_dict() if name != "lm_head.weight"]
    model.load_state_dict({name: weights.tensor(name, torch.bfloat16).float() for name in names}, strict=False)
    model.tie_weights()
    return model.eval()  # type: ignore[no-any-return]


class Recorder:
    """Keeps the logits of every sampled token by request and position."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logits: dict[tuple[str, int], Tensor] = {}
        sample = Sampler.sample

        def record(sampler: Sampler, logits: Tensor, sequences: list[Sequence]) -> Sampled:
            for row, sequence in zip(logits, sequences, strict=True):
                self.logits[sequence.request_id, sequence.num_tokens] = row.float().cpu()
            return sample(sampler, logits, sequences)

        monkeypatch.setattr(Sampler, "sample", record)

    def check(self, reference: torch.nn.Module, name: str, prompt: list[int], answer: list[int]) -> None:
        """Logits of the prompt's end and of every token of the answer; each token is as good as the best."""
        with torch.inference_mode():
            ids = torch.tensor([prompt + answer[:-1]], device="cuda")
            expected = reference(ids, use_cache=False, logits_to_keep=len(answer)).logits[0].float().cpu()
        for index, row in enumerate(expected):
            found = self.logits[name, len(prompt) + index]
            assert float((found - row).norm() / row.norm()) < TOLERANCE, (name, index)
            assert float(row.max() - row[answer[index]]) <= 10 * TOLERANCE * float(row.std()), (name, index)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


@pytest.fixture(scope="module", params=[16, 256], ids=["blocks-of-16", "blocks-of-256"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    config = EngineConfig(
        random_weights=SHAPE, device="cuda", block_size=request.param, max_num_seqs=20, max_num_batched_tokens=2048,
        num_kv_blocks=65_536 // request.param,
    )  # fmt: skip
    with LLM(config) as made:
        yield made


def make_prompts(lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(sum(lengths))
    return [[rng.randrange(VOCABULARY) for _ in range(length)] for length in lengths]


def serve(llm: LLM, prompts: list[list[int]], count: int) -> dict[str, list[int]]:
    known = set(llm._engine._answers)
    assert not known
    answers = llm.generate(prompts, [count] * len(prompts))
    return {str(index): answer for index, answer in enumerate(answers)}


def names(recorder: Recorder) -> list[str]:
    return sorted({name for name, _ in recorder.logits}, key=lambda name: int(name.rsplit("-", 1)[1]))


def test_the_card_runs_our_kernels(llm: LLM) -> None:
    assert llm.info.attention == "paged Triton kernels"
    assert llm.info.dtype == "bfloat16"
    assert llm._engine._model.runner._graphs is not None


@pytest.mark.parametrize("lengths", [LENGTHS, *[(length,) for length in LENGTHS]], ids=str)
def test_logits_and_answers(llm: LLM, reference: torch.nn.Module, recorder: Recorder, lengths: tuple[int, ...]) -> None:
    """All together, in mixed batches of chunks and decode rows, and each alone."""
    prompts = make_prompts(lengths)
    answers = serve(llm, prompts, NEW_TOKENS)
    for name, prompt, answer in zip(names(recorder), prompts, answers.values(), strict=True):
        recorder.check(reference, name, prompt, answer)


@pytest.mark.parametrize("rows", [*range(1, 21)])
def test_every_graph_size(llm: LLM, reference: torch.nn.Module, recorder: Recorder, rows: int) -> None:
    assert any(size >= rows for size in ladder(20))
    prompts = make_prompts(tuple(range(3, 3 + rows)))
    answers = serve(llm, prompts, 3)
    for name, prompt, answer in zip(names(recorder), prompts, answers.values(), strict=True):
        recorder.check(reference, name, prompt, answer)
