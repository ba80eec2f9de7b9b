"""Device, dtype and memory before anything is loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import target
from engine.cache.kv_cache import block_bytes
from engine.config import EngineConfig
from engine.errors import UsageError
from engine.memory.plan import PlanRefusedError
from engine.target import Target, TooFewBlocksError, choose_target, plan_cache, snapshot
from engine.weights.random import SHAPES

SMOLLM2 = SHAPES["smollm2-135m"]
CPU = Target(torch.device("cpu"), torch.bfloat16, "CPU, 1 thread")
GIB = 2**30


@pytest.fixture(autouse=True)
def _a_machine_with_14_gib_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "system_total_bytes", lambda: 16 * GIB)
    monkeypatch.setattr(target, "cpu_available_bytes", lambda: 14 * GIB)


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Card {device.index}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))


# --- device and dtype ---


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_a_gpu_it_is_the_cpu(device: str) -> None:
    found = choose_target(EngineConfig(device=device, threads=1))
    assert found.device == torch.device("cpu")
    assert found.is_cpu
    assert found.description == "CPU, 1 thread"
    assert torch.get_num_threads() == 1


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize(("reserved", "threads"), [(0, 4), (1, 3), (4, 1), (9, 1)])
def test_threads_are_the_cores_that_are_not_reserved(
    monkeypatch: pytest.MonkeyPatch, reserved: int, threads: int
) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(target, "physical_cores", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    assert choose_target(EngineConfig(reserved_cores=reserved)).description.startswith(f"CPU, {threads} thread")
    assert choose_target(EngineConfig(reserved_cores=reserved, threads=2)).description == "CPU, 2 threads"
    assert chosen == [threads, 2]


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(UsageError, match=rf"'{device}' was asked for, but torch sees no GPU here. Use --device cpu\."):
        choose_target(EngineConfig(device=device))


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(("device", "index"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_a_gpu_is_taken_where_there_is_one(device: str, index: int) -> None:
    found = choose_target(EngineConfig(device=device))
    assert found == Target(torch.device("cuda", index), torch.bfloat16, f"Card {index}")
    assert not found.is_cpu


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize("device", ["cuda:2", "tpu", "mps", "cuda:x"])
def test_a_foreign_device_is_named(device: str) -> None:
    with pytest.raises(UsageError, match=f"'{device}'"):
        choose_target(EngineConfig(device=device))


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        ((12, 0), torch.bfloat16), ((8, 6), torch.bfloat16), ((8, 0), torch.bfloat16), ((7, 5), torch.float16),
        ((7, 0), torch.float16), ((6, 1), torch.float32),
    ],
)  # fmt: skip
def test_the_format_follows_the_card(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    assert choose_target(EngineConfig(device="cuda")).dtype is dtype
    assert choose_target(EngineConfig(device="cuda", dtype="float32")).dtype is torch.float32, "what is asked wins"


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize(("avx512", "amx"), [(True, True), (True, False), (False, True), (False, False)])
def test_bfloat16_only_where_the_cpu_multiplies_it(monkeypatch: pytest.MonkeyPatch, avx512: bool, amx: bool) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    expected = torch.bfloat16 if avx512 or amx else torch.float32
    assert choose_target(EngineConfig(threads=1)).dtype is expected
    for name in ("bfloat16", "float16", "float32"):
        assert choose_target(EngineConfig(threads=1, dtype=name)).dtype is getattr(torch, name), "what is asked wins"


def test_what_torch_says_of_this_cpu_is_what_the_kernel_says() -> None:
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    assert torch.cpu._is_avx512_bf16_supported() == ("avx512_bf16" in flags)
    assert torch.cpu._is_amx_tile_supported() == ("amx_tile" in flags)


def test_an_unknown_dtype_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"'int8' is unknown; use auto, bfloat16, float16, float32\."):
        choose_target(EngineConfig(device="cpu", threads=1, dtype="int8"))


# --- memory ---


def test_the_snapshot_counts_weights_and_activations() -> None:
    config = EngineConfig(max_num_batched_tokens=256, max_num_seqs=16)
    taken = snapshot(config, SMOLLM2, CPU)
    # The tied head, packed for the CPU's matrix product, stands beside the embedding table.
    assert taken.allocated_bytes == (134_515_008 + 49_152 * 576) * 2
    assert taken.free_bytes == 14 * GIB - taken.allocated_bytes
    assert taken.margin_bytes == taken.free_bytes - taken.free_bytes // 4
    assert taken.block_bytes == 2 * 30 * 3 * 64 * 16 * 2
    # By hand: 256 rows of 4 hidden and 3 inner vectors in bfloat16, and 16 rows of logits in four float64 copies.
    assert taken.activation_bytes == 256 * (4 * 576 + 3 * 1536) * 2 + 16 * 49_152 * 32
    assert taken.max_model_len_tokens == 8192


def plan_blocks(**changes: Any) -> int:
    return plan_cache(EngineConfig(**changes), SMOLLM2, CPU).usable_blocks


def test_blocks_asked_for_are_given_exactly() -> None:
    assert plan_blocks(num_kv_blocks=222, block_size=256) == 222
    assert plan_blocks(num_kv_blocks=5000, max_num_seqs=1, max_model_len=512) == 5000, "never cut to what is useful"


def test_without_a_number_the_slots_decide() -> None:
    assert plan_blocks(max_num_seqs=4, max_model_len=1024) == 4 * 1024 // 16


def test_bytes_asked_for_are_kept() -> None:
    size = block_bytes(SMOLLM2, 16, torch.bfloat16)
    assert plan_blocks(kv_bytes=100 * size + 5) == 99, "one block is for padding"


def test_a_context_beyond_the_models_is_the_models() -> None:
    assert snapshot(EngineConfig(max_model_len=10**6), SMOLLM2, CPU).max_model_len_tokens == 8192


@pytest.mark.parametrize("changes", [{"num_kv_blocks": 10**6}, {"kv_bytes": 1000}], ids=str)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PlanRefusedError):
        plan_blocks(**changes)


def test_too_few_blocks_are_refused_in_blocks() -> None:
    with pytest.raises(TooFewBlocksError, match=r"at least 32 blocks \(--kv-blocks 32\)"):
        plan_blocks(num_kv_blocks=31)
    assert plan_blocks(num_kv_blocks=32) == 32


def test_a_share_of_our_own_counts_our_weights() -> None:
    taken = snapshot(EngineConfig(own_limit_fraction=0.1), SMOLLM2, CPU)
    assert taken.own_bytes == taken.allocated_bytes
    assert taken.own_room_bytes == int(0.1 * 16 * GIB) - taken.allocated_bytes - taken.activation_bytes


@pytest.mark.parametrize("gib", [(14, 15, 16), (14, 9, 8)], ids=["others-give-back", "others-take"])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_3_memory_that_moves_while_it_is_measured_is_no_error(
    monkeypatch: pytest.MonkeyPatch, device: str, gib: tuple[int, ...]
) -> None:
    readings = iter(gib)
    monkeypatch.setattr(target, "cpu_available_bytes", lambda: next(readings) * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (next(readings) * GIB, 24 * GIB))
    place = replace(CPU, device=torch.device(device))
    config = EngineConfig(max_num_seqs=256)
    blocks = [plan_cache(config, SMOLLM2, place).usable_blocks for _ in gib]
    assert blocks == sorted(blocks, reverse=gib[-1] < gib[0])
    assert 0 < min(blocks) < max(blocks)


@pytest.mark.parametrize(("card_gib", "margin_mib"), [(4, 256), (16, 512), (80, 1024)])
def test_a_card_keeps_a_margin_for_others(monkeypatch: pytest.MonkeyPatch, card_gib: int, margin_mib: int) -> None:
    total = card_gib * GIB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (total // 2, total))
    card = replace(CPU, device=torch.device("cuda", 0))
    taken = snapshot(EngineConfig(), SMOLLM2, card)
    assert (taken.total_bytes, taken.margin_bytes) == (total, margin_mib * 2**20)
    assert taken.free_bytes < total // 2 - taken.allocated_bytes, "weights are not loaded yet, and handles cost too"


def test_more_threads_than_the_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP would try to start them, and take the process down."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", lambda _count: None)
    assert choose_target(EngineConfig(device="cpu", threads=4)).description == "CPU, 4 threads"
    for asked in (5, 1_000_000, 10**14):
        with pytest.raises(UsageError, match=f"{asked:,} CPU threads were asked for; this machine has 4"):
            choose_target(EngineConfig(device="cpu", threads=asked))
