"""Each bad input has its sentence on stderr and its exit code: 2 for usage and input, 3 for refusals."""

from pathlib import Path

import pytest
import torch

from app import cli
from tests.engine.cli.conftest import Terminal, assert_one_sentence


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name.lower()))


@pytest.fixture
def files(tmp_path: Path, tiny_gguf: Path) -> dict[str, str]:
    """What the arguments' names in braces stand for."""
    cut, foreign, no_text = (tmp_path / name for name in ("cut.gguf", "letter.gguf", "no-tensors.gguf"))
    data = tiny_gguf.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    no_text.write_bytes(data[:100])
    foreign.write_text("Dear reader, this is no model.")
    (tmp_path / "empty").mkdir()
    return {
        "model": str(tiny_gguf), "cut": str(cut), "foreign": str(foreign), "header": str(no_text),
        "empty": str(tmp_path / "empty"), "nowhere": str(tmp_path / "nowhere" / "trace.json"),
    }  # fmt: skip


BAD = {
    "unknown-model": (["chat", "hi", "-m", "no-such-model"], 2, "There is no model called 'no-such-model' here."),
    "truncated": (["chat", "hi", "-m", "{cut}"], 2, "{cut}"),
    "half-a-header": (["chat", "hi", "-m", "{header}"], 2, "{header}"),
    "foreign": (["chat", "hi", "-m", "{foreign}"], 2, "{foreign}"),
    "empty-folder": (["chat", "hi", "-m", "{empty}"], 2, "{empty}"),
    "too-long": (["chat", "word " * 400, "-m", "{model}"], 2, "the context of the model allows 256"),
    "empty-prompt": (["chat", "  ", "-m", "{model}"], 2, "The prompt is empty"),
    "temperature": (["chat", "hi", "-m", "{model}", "--temperature", "3"], 2, "The temperature is 3.0"),
    "top-p": (["chat", "hi", "-m", "{model}", "--top-p", "0"], 2, "top-p is 0.0"),
    "top-k": (["chat", "hi", "-m", "{model}", "--top-k", "-1"], 2, "top-k is -1"),
    "min-p": (["chat", "hi", "-m", "{model}", "--min-p", "nan"], 2, "min-p is nan"),
    "repetition": (["chat", "hi", "-m", "{model}", "--repetition-penalty", "0"], 2, "The repetition penalty is 0.0"),
    "presence": (["chat", "hi", "-m", "{model}", "--presence-penalty", "inf"], 2, "The presence penalty is inf"),
    "frequency": (["chat", "hi", "-m", "{model}", "--frequency-penalty", "-3"], 2, "The frequency penalty is -3.0"),
    "stop": (["chat", "hi", "-m", "{model}", "--stop", ""], 2, "A stop string is empty"),
    "logprobs": (["chat", "hi", "-m", "{model}", "--logprobs", "21"], 2, "Log probabilities of 21 tokens"),
    "max-tokens": (["chat", "hi", "-m", "{model}", "--max-tokens", "0"], 2, "The answer's limit is 0 tokens"),
    "device": (["chat", "hi", "-m", "{model}", "--device", "cuda"], 2, "torch sees no GPU here"),
    "dtype": (["chat", "hi", "-m", "{model}", "--dtype", "foo"], 2, "The dtype 'foo' is unknown"),
    "threads": (["chat", "hi", "-m", "{model}", "--threads", "0"], 2, "0 CPU threads"),
    "kv-blocks-1": (["demo", "-m", "{model}", "--kv-blocks", "1"], 3, "--kv-blocks 16"),
    "kv-blocks-0": (["demo", "-m", "{model}", "--kv-blocks", "0"], 2, "0 KV blocks were asked for"),
    "kv-blocks-huge": (["demo", "-m", "{model}", "--kv-blocks", "1000000000"], 3, ""),
    "block-size": (["demo", "-m", "{model}", "--block-size", "17"], 2, "The block size is 17"),
    "slots": (["demo", "-m", "{model}", "--slots", "0"], 2, "0 slots were asked for"),
    "token-budget": (
        ["demo", "-m", "{model}", "--token-budget", "7"],
        2,
        "The token budget of a step is 7, below the 8",
    ),
    "chunk-size": (["demo", "-m", "{model}", "--chunk-size", "0"], 2, "Chunks of 0 tokens were asked for"),
    "policy": (["demo", "-m", "{model}", "--policy", "random"], 2, "'random' is not one of 'mixed', 'prefill-first'"),
    "chat-budget": (["chat", "hi", "-m", "{model}", "--token-budget", "0"], 2, "The token budget of a step is 0"),
    "bench-budget": (["bench", "single", "-m", "{model}", "--token-budget", "9"], 2, "The token budget of a step is 9"),
    "demo-dtype": (["demo", "-m", "{model}", "--dtype", "foo"], 2, "The dtype 'foo' is unknown"),
    "json": (["demo", "-m", "{model}", "--json", "{nowhere}"], 2, "{nowhere} cannot be written"),
    "scenario": (["demo", "seeds"], 2, "There is no scenario called 'seeds'; choose slots or seed."),
    "prompts-too-long": (["demo", "seed", "-m", "{model}"], 2, "the context of the model allows 256"),
    "workload": (["bench", "huge"], 2, "There is no workload called 'huge'"),
    "shape": (["bench", "single", "--random-weights", "gpt9"], 2, "There is no shape called 'gpt9'"),
    "comparison": (["bench", "cpu", "--random-weights", "qwen3-0.6b"], 2, "compares real weights"),
    "both": (["bench", "single", "-m", "x", "--random-weights", "qwen3-0.6b"], 2, "not both"),
    "bench-json": (["bench", "single", "-m", "{model}", "--json", "{nowhere}"], 2, "{nowhere} cannot be written"),
    "plan-model": (["plan", "-m", "{cut}"], 2, "{cut}"),
    "snapshot": (["plan", "--snapshot", "{nowhere}"], 2, "{nowhere} cannot be read"),
    "empty-model": (["chat", "hi", "-m", ""], 2, "no model called"),
    "device-unknown": (["chat", "hi", "-m", "{model}", "--device", "banana"], 2, "'banana' is unknown"),
    "no-number": (["demo", "--kv-blocks", "many"], 2, "--kv-blocks"),
    "no-option": (["chat", "hi", "--color"], 2, "No such option: --color"),
    "no-command": (["models"], 2, "Missing command"),
    "two-prompts": (["chat", "hi", "there"], 2, "unexpected extra argument"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_has_its_sentence_and_its_exit_code(
    name: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, code, sentence = BAD[name]
    if name == "device" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert cli.run([argument.format(**files) for argument in arguments]) == code
    said = capsys.readouterr()
    assert said.out == "" or name == "prompts-too-long", "only there the demo has begun"
    assert_one_sentence(said.err)
    assert sentence.format(**files) in said.err


@pytest.mark.parametrize("name", ["truncated", "kv-blocks-1", "no-option"])
def test_a_process_ends_the_same_way(name: str, files: dict[str, str], terminal: Terminal) -> None:
    arguments, code, sentence = BAD[name]
    done = terminal.types(*(argument.format(**files) for argument in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert_one_sentence(done.stderr)
    assert sentence.format(**files) in done.stderr


def test_a_conversation_ends_with_its_first_error(terminal: Terminal, tiny_gguf: Path) -> None:
    """From a file or a pipe, an error is no answer: the exit code has to say so."""
    done = terminal.types(
        "chat", "-m", tiny_gguf, "--threads", "1", "--max-tokens", "3", stdin=f"Hello\n{'word ' * 400}\nnever read\n"
    )
    assert done.returncode == 2
    assert done.stdout.count("\n") == 1
    assert_one_sentence(done.stderr)
