"""Processes, samples, steps and block maps as tests need them."""

from collections.abc import Iterable

from app.gpu.record import MemoryKind, MemorySample, ProcessIdentity, ProcessKind, ProcessMemory
from engine.events import ModelInfo, StepStats

GIB = 2**30
MIB = 2**20


def process(
    name: str,
    pid: int,
    memory_bytes: int | None,
    kind: ProcessKind = ProcessKind.APPLICATION,
    protected_because: str = "",
) -> ProcessMemory:
    return ProcessMemory(
        identity=ProcessIdentity(pid, 10 * pid),
        name=name,
        user="anna",
        command=f"/usr/bin/{name}",
        memory_bytes=memory_bytes,
        kind=kind,
        protected_because=protected_because,
    )


def sample(
    time_s: float,
    processes: Iterable[ProcessMemory] = (),
    *,
    total_bytes: int = 12 * GIB,
    unattributed_bytes: int = 0,
    reserved_bytes: int = 0,
    shared_bytes: int = 0,
    memory: MemoryKind = MemoryKind.VRAM,
    device: str = "Card",
    note: str = "",
) -> MemorySample:
    """Used is what the parts add up to."""
    rows = tuple(processes)
    used = sum(row.memory_bytes or 0 for row in rows) + unattributed_bytes + shared_bytes
    return MemorySample(
        time_s=time_s,
        memory=memory,
        device=device,
        total_bytes=total_bytes,
        used_bytes=used,
        free_bytes=total_bytes - used - reserved_bytes,
        reserved_bytes=reserved_bytes,
        shared_bytes=shared_bytes,
        unattributed_bytes=unattributed_bytes,
        processes=rows,
        note=note,
    )


def step(
    number: int,
    time_s: float = 0.0,
    *,
    prefill: int = 0,
    decode: int = 1,
    running: int = 1,
    waiting: int = 0,
    preempted: int = 0,
    used: int = 1,
    cached: int = 0,
    total: int = 100,
) -> StepStats:
    return StepStats(
        step=number,
        time_s=time_s,
        prefill_tokens=prefill,
        decode_tokens=decode,
        running=running,
        waiting=waiting,
        preempted=preempted,
        blocks_total=total,
        blocks_free=total - used,
        blocks_used=used,
        blocks_cached=cached,
        schedule_ms=0.5,
        forward_ms=7.0,
        sample_ms=0.5,
    )


def model_info(num_blocks: int = 100, max_num_batched_tokens: int = 128) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        architecture="LlamaForCausalLM",
        dtype="float32",
        device="CPU",
        attention="gather + SDPA",
        num_parameters=1,
        weights_bytes=1,
        block_size_tokens=16,
        block_bytes=MIB,
        num_blocks=num_blocks,
        max_model_len_tokens=512,
        max_num_seqs=8,
        max_num_batched_tokens=max_num_batched_tokens,
        load_s=0.1,
    )
