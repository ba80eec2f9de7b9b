"""`kvscope chat`: one answer, or a conversation, streamed to stdout."""

import sys

from engine.cli.terminal import StatusLine, stdin_is_terminal
from engine.config import EngineConfig
from engine.errors import EngineError, UsageError
from engine.events import FinishReason, RequestFinished, TextDelta
from engine.llm import LLM
from engine.requests import Message, SamplingParams


class AnswerInterrupted(KeyboardInterrupt):
    """The user has interrupted an answer; `so_far` is what there is of it."""

    def __init__(self, so_far: Message) -> None:
        super().__init__()
        self.so_far = so_far


def answer(llm: LLM, messages: tuple[Message, ...], sampling: SamplingParams) -> Message:
    """Stream one answer to stdout and return it; what was reached in the end goes to stderr on a terminal.

    Raises:
        AnswerInterrupted: by the user.
        EngineError: the answer ended in an error.
    """
    ends: list[RequestFinished] = []
    deltas: list[TextDelta] = []
    try:
        for delta in llm.deltas(messages, sampling, ends.append):
            deltas.append(delta)
            sys.stdout.write(delta.text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise AnswerInterrupted(_message(deltas)) from None
    sys.stdout.write("\n")
    if sampling.logprobs is not None:
        _print_logprobs(llm, deltas)
    _report(ends[0])
    return _message(deltas, ends[0].reason)


def _print_logprobs(llm: LLM, deltas: list[TextDelta]) -> None:
    """A line for each token: its log probability, then the most likely tokens of its place."""
    for entry in (each for delta in deltas for each in delta.logprobs):
        tokens = (f"{token.logprob:8.4f} {llm.token_text(token.token_id)!r:14}" for token in (entry.chosen, *entry.top))
        print("  ".join(tokens).rstrip())


def _message(deltas: list[TextDelta], reason: FinishReason = FinishReason.CANCELLED) -> Message:
    text = "".join(delta.text for delta in deltas)
    token_ids = tuple(token_id for delta in deltas for token_id in delta.token_ids)
    # The end token is the template's to write.
    return Message("assistant", text, token_ids[:-1] if reason is FinishReason.EOS else token_ids)


def _report(finished: RequestFinished) -> None:
    if finished.reason is FinishReason.ERROR:
        raise EngineError(finished.message)
    if finished.reason is FinishReason.CAPACITY:
        print(finished.message, file=sys.stderr)
    if sys.stderr.isatty() and finished.ttft_s is not None:
        speed = finished.tokens_per_s
        rate = f"{speed:.1f} tok/s · " if speed else ""
        print(
            f"{rate}first token {finished.ttft_s:.2f} s · {finished.new_tokens} tokens · "
            f"{finished.cached_tokens} of {finished.prompt_tokens} prompt tokens cached",
            file=sys.stderr,
        )


def converse(llm: LLM, history: tuple[Message, ...], sampling: SamplingParams) -> None:
    """Read prompts from stdin until it ends; an error ends one answer, not the conversation."""
    interactive = stdin_is_terminal()
    if interactive:
        print(f"{llm.info.name}. An empty line or Ctrl+D ends the conversation.", file=sys.stderr)
    while (prompt := _read_prompt()) is not None:
        messages = (*history, Message("user", prompt))
        try:
            reply = answer(llm, messages, sampling)
        except AnswerInterrupted as stop:
            print("\nStopped.", file=sys.stderr)
            if not stop.so_far.content:
                continue
            reply = stop.so_far
        except EngineError as error:
            if not interactive:
                raise
            print(error, file=sys.stderr)
            continue
        history = (*messages, reply)


def _read_prompt() -> str | None:
    if stdin_is_terminal():
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = sys.stdin.readline().strip()
    return line or None


def chat(config: EngineConfig, prompt: str | None, system: str | None, sampling: SamplingParams) -> int:
    """Load the model, then answer `prompt` or hold a conversation."""
    if prompt is not None and not prompt.strip():
        raise UsageError("The prompt is empty; write what the model should answer.")
    if prompt is None and sys.stdin is None:
        raise UsageError("There is no prompt and nothing to read one from; write the prompt behind `chat`.")
    history = (Message("system", system),) if system else ()
    with StatusLine() as status:
        llm = LLM(config, status.show_load)
    with llm:
        if prompt is None:
            converse(llm, history, sampling)
        else:
            answer(llm, (*history, Message("user", prompt)), sampling)
    return 0
