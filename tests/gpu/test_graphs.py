"""Captures beside other work on the card, and a cache that changes its size."""

import gc
import threading

import pynvml
import pytest
import torch

from engine.config import EngineConfig
from engine.llm import LLM
from engine.runner.cuda_graphs import CudaCapture, DecodeOutput

CONFIG = EngineConfig(
    random_weights="smollm2-135m", device="cuda", max_num_seqs=8, max_num_batched_tokens=256, num_kv_blocks=200,
    max_model_len=1024,
)  # fmt: skip


class Monitor:
    """Reads the card's memory and processes 200 times a second, as a monitor beside the engine does."""

    def __init__(self) -> None:
        self.reads = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Monitor":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not self._stop.wait(0.005):
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            self.reads += 1
        pynvml.nvmlShutdown()


def test_monitoring_breaks_no_capture(device: torch.device) -> None:
    """As many captures as 20 starts with eight sizes make."""
    x = torch.ones(64, device=device)
    with Monitor() as monitor:
        for _ in range(160):
            replay = CudaCapture(device)(lambda: DecodeOutput(x * 2, x.isfinite()))
            assert float(replay().logits.sum()) == 128
    assert monitor.reads > 0


def test_another_thread_may_allocate_during_a_capture(device: torch.device) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            torch.empty(2**20, device=device).fill_(1)
            torch.cuda.mem_get_info(device)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        x = torch.ones(64, device=device)
        for _ in range(20):
            assert float(CudaCapture(device)(lambda: DecodeOutput(x + 1, x.isfinite()))().logits.sum()) == 128
    finally:
        stop.set()
        thread.join()


def test_eager_steps_graphs_and_a_resized_cache_agree() -> None:
    prompts = [[7 * index + 1] * (20 * index + 1) for index in range(5)]
    with LLM(CONFIG) as llm:
        first = llm.generate(prompts, [30] * 5)
        llm._engine.resize_cache(300)
        assert llm._engine._model.runner._graphs is not None
        again = llm.generate(prompts, [30] * 5)
        assert first == again
        llm._engine._model.runner._graphs = None
        eager = llm.generate(prompts, [30] * 5)
        assert [answer[0] for answer in eager] == [answer[0] for answer in first]


def test_unloading_gives_the_memory_back() -> None:
    before = torch.cuda.memory_allocated()
    with LLM(CONFIG) as llm:
        llm.generate([[1, 2, 3]], [10])
        held = torch.cuda.memory_allocated() - before
    left = torch.cuda.memory_allocated() - before
    assert held > 2**28, "weights, cache and graphs"
    assert left < 2**26, "the libraries' workspaces at most"


@pytest.fixture(autouse=True)
def _clean() -> None:
    """Other tests' models, which may hang in circles."""
    gc.collect()
    torch.cuda.empty_cache()
