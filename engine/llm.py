"""The engine for callers that wait: one thread, no queue. The command line and scripts use it."""

import itertools
from collections.abc import Callable, Iterable, Iterator

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import LoadProgress, ModelInfo, RequestFinished, StepOutput, TextDelta
from engine.requests import Message, Request, SamplingParams


class LLM:
    """A loaded model. Use it in a `with` block, or call `close`."""

    def __init__(self, config: EngineConfig, on_progress: Callable[[LoadProgress], None] = lambda _: None) -> None:
        """See Engine.load."""
        self._engine = Engine.load(config, on_progress)
        self._ids = itertools.count(1)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def info(self) -> ModelInfo:
        """What is loaded."""
        return self._engine.info

    def token_text(self, token_id: int) -> str:
        """The token by itself, control tokens by name; bytes that are no whole character are shown as U+FFFD."""
        return self._engine.token_text(token_id)

    def run(self, requests: Iterable[Request]) -> Iterator[StepOutput]:
        """Serve all requests together; one output per step until the last has ended."""
        try:
            for request in requests:
                self._engine.submit(request)
            while self._engine.has_work:
                yield self._engine.step()
        finally:
            # A caller that stops listening also stops the work, and so does a request that is refused.
            self._engine.cancel_all()

    def stream(
        self, messages: tuple[Message, ...], sampling: SamplingParams, on_finish: Callable[[RequestFinished], None]
    ) -> Iterator[str]:
        """The text of an answer to a conversation, piece by piece; `on_finish` is called with its end."""
        yield from (delta.text for delta in self.deltas(messages, sampling, on_finish) if delta.text)

    def deltas(
        self, messages: tuple[Message, ...], sampling: SamplingParams, on_finish: Callable[[RequestFinished], None]
    ) -> Iterator[TextDelta]:
        """The same with the ids of the tokens, for who goes on with the conversation."""
        request = Request(request_id=f"stream-{next(self._ids)}", messages=messages, sampling=sampling)
        for output in self.run([request]):
            yield from output.deltas
            for finished in output.finished:
                if finished.text:
                    yield TextDelta(finished.request_id, (), finished.text)
                on_finish(finished)

    def generate(self, prompts: list[list[int]], max_tokens: list[int], *, temperature: float = 0.0) -> list[list[int]]:
        """New token ids of each prompt of token ids; end tokens are ignored. Order as given."""
        first = next(self._ids)
        requests = [
            Request(
                request_id=f"generate-{first}-{index}",
                token_ids=tuple(prompt),
                sampling=SamplingParams(temperature=temperature, max_tokens=limit, ignore_eos=True),
            )
            for index, (prompt, limit) in enumerate(zip(prompts, max_tokens, strict=True))
        ]
        new_tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
        for output in self.run(requests):
            for delta in output.deltas:
                new_tokens[delta.request_id] += delta.token_ids
        return list(new_tokens.values())

    def close(self) -> None:
        """Give everything back."""
        self._engine.close()
