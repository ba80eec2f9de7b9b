"""Feeds requests to a real engine and keeps what comes out: tokens, ends, and the logits behind every token."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from engine.engine import Engine
from engine.events import Phase, RequestFinished, StepOutput
from engine.requests import Request, SamplingParams
from engine.runner.model_runner import RunResult
from engine.scheduling.batch import Batch


class _HeardDecoder:
    """The engine's decoder, whose logits are kept."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.heard: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def logits(self, hidden: Tensor) -> Tensor:
        rows: Tensor = self._decoder.logits(hidden)
        self.heard += rows.float().clone()
        return rows


class Session:
    """One engine and everything it is asked and says."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.prompts: dict[str, list[int]] = {}
        self.samplings: dict[str, SamplingParams] = {}
        self.answers: dict[str, list[int]] = {}
        self.logits: defaultdict[str, list[Tensor]] = defaultdict(list)
        self.ends: dict[str, RequestFinished] = {}
        self.outputs: list[StepOutput] = []
        engine.set_watched(enabled=True)
        self._listen()

    def submit(self, prompts: Sequence[list[int]], num_tokens: int) -> list[str]:
        """Greedy and seeded requests by turns; their names."""
        names = []
        for prompt in prompts:
            number = len(self.prompts)
            name = f"request {number}"
            temperature = (0.0, 0.8, 0.0, 1.3)[number % 4]
            sampling = SamplingParams(
                temperature=temperature, seed=1_000 + number, max_tokens=num_tokens, ignore_eos=True
            )
            self.engine.submit(Request(request_id=name, token_ids=tuple(prompt), sampling=sampling))
            self.prompts[name], self.samplings[name], self.answers[name] = list(prompt), sampling, []
            names.append(name)
        return names

    def step(self, count: int = 1) -> None:
        """As many steps, or fewer if nothing is left to do."""
        for _ in range(count):
            if not self.engine.has_work:
                return
            output = self.engine.step()
            self.outputs.append(output)
            for delta in output.deltas:
                self.answers[delta.request_id] += delta.token_ids
            self.ends |= {end.request_id: end for end in output.finished}

    def run(self) -> None:
        """Until nothing is open."""
        while self.engine.has_work:
            self.step()

    def cancel(self, name: str) -> None:
        end = self.engine.cancel(name)
        if end is not None:
            self.ends[name] = end

    @property
    def largest_batch(self) -> int:
        """Most sequences that one step computed for."""
        return max((sum(row.tokens > 0 for row in output.stats.rows) for output in self.outputs), default=0)

    @property
    def preemptions(self) -> int:
        return sum(output.stats.preempted for output in self.outputs)

    def num_prefill_steps(self, name: str) -> int:
        """In how many steps a part of its tokens was computed."""
        rows = [row for output in self.outputs for row in output.stats.rows if row.request_id == name]
        return sum(row.phase is Phase.PREFILL for row in rows)

    def _listen(self) -> None:
        runner = self.engine._model.runner
        decoder: Any = _HeardDecoder(runner._decoder)
        run = runner.run

        def listening_run(batch: Batch) -> RunResult:
            decoder.heard.clear()
            result = run(batch)
            sampling = [item.sequence.request_id for item in batch.items if item.samples]
            for name, row in zip(sampling, decoder.heard, strict=True):
                self.logits[name].append(row)
            return result

        runner._decoder = decoder
        runner.run = listening_run  # type: ignore[method-assign]
