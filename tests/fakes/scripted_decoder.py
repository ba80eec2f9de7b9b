"""A decoder that says what a test wants, in place of a loaded one; everything around it is real."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.engine import Engine
from engine.model.decoder import Attend
from tests.fakes.tiny_model import VOCAB

FILLER = 40  # said after the script's end


class ScriptedDecoder:
    """Says token `script[i]` at position `prompt_tokens + i`, whatever came before."""

    def __init__(self, prompt_tokens: int, script: Sequence[int]) -> None:
        self._prompt_tokens = prompt_tokens
        self._script = list(script)

    def forward(self, _token_ids: Tensor, positions: Tensor, _attend: Attend) -> Tensor:
        """The positions stand for the hidden states: (tokens, 1)."""
        return positions.double().unsqueeze(1)

    def logits(self, hidden: Tensor) -> Tensor:
        """10 for the token of the script, 0 for all others."""
        scores = torch.zeros(len(hidden), VOCAB)
        for row, position in enumerate(hidden[:, 0].long().tolist()):
            scores[row, self._token(position + 1)] = 10.0
        return scores

    def _token(self, position: int) -> int:
        index = position - self._prompt_tokens
        return self._script[index] if index < len(self._script) else FILLER


def say(engine: Engine, script: Sequence[int], *, prompt_tokens: int) -> None:
    """From now on the engine's model answers prompts of this length with `script`."""
    engine._model.runner._decoder = ScriptedDecoder(prompt_tokens, script)  # type: ignore[assignment]
