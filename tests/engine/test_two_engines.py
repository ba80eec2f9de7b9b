"""Two engines on one machine: two processes at once, and one model after another in one loop."""

import json
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

from engine.commands import Command, LoadModel, Stop, Submit
from engine.events import EngineEvent, RequestFinished, StepOutput
from engine.loop import EngineLoop
from tests.fakes.tiny_model import VOCAB, chat_folder, greedy, tiny_chat_model, tiny_config

PATIENCE_S = 120
PROMPT = list(range(50, 120))
PROGRAM = """
import json, sys, psutil
from engine.config import EngineConfig
from engine.llm import LLM
config = EngineConfig(model=sys.argv[1], device="cpu", dtype="float32", threads=1, num_kv_blocks=32, max_model_len=256)
with LLM(config) as llm:
    print("ready", flush=True)
    sys.stdin.readline()  # until the other one is ready too
    answer = llm.generate([list(range(50, 120))], [20])[0]
    sockets = [str(each) for each in psutil.Process().net_connections(kind="all")]
    print(json.dumps({"answer": answer, "sockets": sockets}))
"""


def test_13_two_processes_at_once(tmp_path: Path) -> None:
    """Neither opens a port that the other one could want."""
    folder = chat_folder(tiny_chat_model(), tmp_path / "tiny")
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        results = [json.loads(program.communicate("go\n", PATIENCE_S)[0]) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait(PATIENCE_S)
    assert results[0] == results[1]
    assert len(results[0]["answer"]) == 20
    assert results[0]["sockets"] == []


def answers(*groups: list[Command]) -> dict[str, tuple[list[int], RequestFinished]]:
    """What a loop says; each group ends with a request, and the next one is sent when that has ended."""
    queue: SimpleQueue[Command] = SimpleQueue()
    left = iter([*groups, [Stop()]])
    tokens: dict[str, list[int]] = {}
    ends: dict[str, RequestFinished] = {}

    def send() -> None:
        for command in next(left):
            queue.put(command)

    def take(event: EngineEvent) -> None:
        if not isinstance(event, StepOutput):
            return
        for delta in event.deltas:
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
        for end in event.finished:
            ends[end.request_id] = end
            send()

    send()
    EngineLoop(queue, take).run()
    return {name: (tokens[name], end) for name, end in ends.items()}


def test_21_nothing_is_found_of_another_model_or_dtype(tmp_path: Path) -> None:
    """The same prompt: a prefix that another model, or the same in another dtype, has computed is no hit."""
    first = chat_folder(tiny_chat_model(), tmp_path / "first")
    other = chat_folder(tiny_chat_model(num_key_value_heads=4), tmp_path / "other")
    configs = {
        "first": tiny_config(first),
        "other": tiny_config(other),
        "bfloat16": tiny_config(first, dtype="bfloat16"),
        "back": tiny_config(first),
    }
    fresh = {
        name: answers([LoadModel(config), Submit(greedy(name, PROMPT, 10))])[name][0]
        for name, config in configs.items()
    }
    groups: list[list[Command]] = []
    for name, config in configs.items():
        groups.append([LoadModel(config), Submit(greedy(name, PROMPT, 10))])
        groups.append([Submit(greedy(f"{name} again", PROMPT, 10))])
    said = answers(*groups)
    assert list(said) == [f"{name}{suffix}" for name in configs for suffix in ("", " again")]
    for name in configs:
        tokens, end = said[name]
        assert end.cached_tokens == 0
        assert said[f"{name} again"][1].cached_tokens == 64, "within one model it is"
        assert tokens == said[f"{name} again"][0] == fresh[name]
    assert fresh["first"] != fresh["other"]
    assert fresh["first"] == fresh["back"]


@pytest.mark.parametrize("token", [0, VOCAB - 1])
def test_21_what_stands_before_a_text_is_part_of_its_key(tmp_path: Path, token: int) -> None:
    """A system prompt, a switch for thinking, the name of an adapter: wherever it stands in the prompt."""
    folder = chat_folder(tiny_chat_model(), tmp_path / "tiny")
    prompts = {
        "plain": PROMPT,
        "front": [token, *PROMPT[1:]],
        "longer": [token, *PROMPT],
        "late": [*PROMPT[:40], token],
    }
    groups: list[list[Command]] = [[Submit(greedy(name, text, 4))] for name, text in prompts.items()]
    groups[0].insert(0, LoadModel(tiny_config(folder)))
    hits = {name: end.cached_tokens for name, (_, end) in answers(*groups).items()}
    assert hits == {"plain": 0, "front": 0, "longer": 0, "late": 32}
