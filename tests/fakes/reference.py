"""A lone transformers model as the judge of greedy answers."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

FLOAT32_TOLERANCE = 1e-5  # torch.testing's absolute tolerance for float32
CLEAR = 10  # a token may lie this many tolerances below the top; a wider gap between the best two is clear


@torch.inference_mode()
def answer_logits(model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
    """What the model scores where each token of the answer stands, in float32: (answer, vocab)."""
    token_ids = torch.tensor([[*prompt, *answer[:-1]]])
    logits: Tensor = model(token_ids, use_cache=False).logits[0]
    return logits[len(prompt) - 1 :].float()


@torch.inference_mode()
def greedy_answer(model: PreTrainedModel, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """The model's own most likely tokens, every prefix computed anew, and the gap between the best two each time."""
    tokens, gaps = list(prompt), []
    for _ in range(count):
        scores, token_ids = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].float().topk(2)
        tokens.append(int(token_ids[0]))
        gaps.append(float(scores[0] - scores[1]))
    return tokens[len(prompt) :], gaps


def shortfalls(logits: Tensor, answer: Sequence[int]) -> Tensor:
    """How far each token lies below the top of its row."""
    chosen = logits.gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)
    return logits.max(dim=1).values - chosen


def assert_greedy(
    model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int], *, tolerance: float = FLOAT32_TOLERANCE
) -> None:
    """Teacher forcing: on its own prefix, each token is the most likely one, or as good as that."""
    below = shortfalls(answer_logits(model, prompt, answer), answer)
    assert float(below.max()) <= CLEAR * tolerance, f"token {int(below.argmax())} lies {float(below.max())} below"
