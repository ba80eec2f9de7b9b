"""Where and in which number format to compute, and what that device's memory allows: the snapshot to plan from."""

import os
from dataclasses import dataclass

import torch

from engine.architecture import ModelArchitecture
from engine.cache.kv_cache import block_bytes
from engine.config import EngineConfig
from engine.errors import RefusalError, UsageError
from engine.memory.measure import cpu_available_bytes, cpu_margin_bytes, physical_cores, system_total_bytes
from engine.memory.plan import MemoryPlan, MemorySnapshot, plan

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

_LOGIT_BYTES = 8 * 4  # the logits of a row in float64, in the four copies that the sampler holds at most
_GPU_WORKSPACE_BYTES = 256 * 2**20  # library handles and their workspaces, before anything is measured
_GPU_MARGIN_PART = 32  # of the device, for the growth of other programs; from 256 MiB to 1 GiB


@dataclass(frozen=True, slots=True)
class Target:
    """A device, a dtype, and the device's name for people."""

    device: torch.device
    dtype: torch.dtype
    description: str

    @property
    def is_cpu(self) -> bool:
        """Whether tensors lie in system memory."""
        return self.device.type == "cpu"


class TooFewBlocksError(RefusalError):
    """A number of blocks that no conversation could use."""

    def __init__(self, asked: int, block_size: int, least: int) -> None:
        blocks = "1 KV block" if asked == 1 else f"{asked} KV blocks"
        super().__init__(
            f"{blocks} of {block_size} tokens are too few for the shortest context worth "
            f"starting; ask for at least {least} blocks (--kv-blocks {least})."
        )


def choose_target(config: EngineConfig) -> Target:
    """What `config` asks for, or the best there is. Sets the number of CPU threads of the calling thread.

    Raises:
        UsageError: an unknown dtype, a device that is not there, or more threads than the machine has.
    """
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        threads = _threads(config)
        torch.set_num_threads(threads)
        name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
        return Target(torch.device("cpu"), _dtype(config, _best_cpu_dtype()), name)
    device = _gpu(config.device)
    return Target(device, _dtype(config, _best_gpu_dtype(device)), torch.cuda.get_device_name(device))


def _threads(config: EngineConfig) -> int:
    """OpenMP starts as many as it is told to, and dies of too many."""
    if config.threads is None:
        return max(physical_cores() - config.reserved_cores, 1)
    most = os.cpu_count() or 1
    if config.threads > most:
        raise UsageError(
            f"{config.threads:,} CPU threads were asked for; this machine has {most}, so ask for at most that."
        )
    return config.threads


def _gpu(name: str) -> torch.device:
    try:
        device = torch.device("cuda:0" if name in {"auto", "cuda"} else name)
    except RuntimeError as error:
        raise UsageError(f"The device {name!r} is unknown; use auto, cpu, cuda or cuda:N.") from error
    if not torch.cuda.is_available():
        raise UsageError(f"The device {name!r} was asked for, but torch sees no GPU here. Use --device cpu.")
    if device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"There is no device {name!r}; torch sees {torch.cuda.device_count()} GPU(s), cuda:0 first.")
    return device


def _best_cpu_dtype() -> torch.dtype:
    """bf16 where the CPU multiplies it natively (AVX512-BF16, AMX); elsewhere it would be emulated."""
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001
    return torch.bfloat16 if native else torch.float32


def _best_gpu_dtype(device: torch.device) -> torch.dtype:
    """bf16 from Ampere (8.0) on; float16 where tensor cores know only that (7.0); float32 on what is older."""
    capability = torch.cuda.get_device_capability(device)
    if capability >= (8, 0):
        return torch.bfloat16
    return torch.float16 if capability >= (7, 0) else torch.float32


def _dtype(config: EngineConfig, best: torch.dtype) -> torch.dtype:
    if config.dtype == "auto":
        return best
    if config.dtype not in DTYPES:
        raise UsageError(f"The dtype {config.dtype!r} is unknown; use auto, {', '.join(DTYPES)}.")
    return DTYPES[config.dtype]


def plan_cache(config: EngineConfig, architecture: ModelArchitecture, target: Target) -> MemoryPlan:
    """How many blocks fit beside the weights, before any of them is read.

    Raises:
        PlanRefusedError: too few to be of use, or more than there is room for.
        TooFewBlocksError: fewer were asked for than the shortest context needs.
    """
    taken = snapshot(config, architecture, target)
    least = taken.blocks_for(taken.min_context_tokens)
    if config.num_kv_blocks is not None and config.num_kv_blocks < least:
        raise TooFewBlocksError(config.num_kv_blocks, config.block_size, least)
    return plan(taken)


def snapshot(config: EngineConfig, architecture: ModelArchitecture, target: Target) -> MemorySnapshot:
    """The device's memory as it will be when the weights are loaded."""
    size_bytes = block_bytes(architecture, config.block_size, target.dtype)
    weights_bytes = loaded_weights_bytes(architecture, target)
    wanted_tokens = config.max_model_len or architecture.max_position_embeddings
    total_bytes, free_bytes, margin_bytes = _memory(target, weights_bytes)
    limited = config.own_limit_fraction is not None
    return MemorySnapshot(
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        allocated_bytes=weights_bytes,
        peak_bytes=weights_bytes + activation_bytes(config, architecture, target.dtype),
        graphs_bytes=0,
        margin_bytes=margin_bytes,
        block_bytes=size_bytes,
        block_size_tokens=config.block_size,
        max_model_len_tokens=min(wanted_tokens, architecture.longest_context_tokens),
        # An explicit number of blocks is taken as asked, or refused; it is never cut to what the slots can use.
        max_num_seqs=max(config.max_num_seqs, config.num_kv_blocks or 0),
        own_limit_fraction=config.own_limit_fraction,
        own_bytes=weights_bytes if limited else None,
        kv_bytes_requested=_requested_bytes(config, size_bytes),
    )


def loaded_weights_bytes(architecture: ModelArchitecture, target: Target) -> int:
    """What the weights hold once loaded. A tied head that was packed for oneDNN stands beside the embedding table."""
    num_weights = architecture.num_parameters
    if architecture.tie_word_embeddings and target.is_cpu and target.dtype is torch.bfloat16:
        num_weights += architecture.vocab_size * architecture.hidden_size
    return num_weights * target.dtype.itemsize


def _requested_bytes(config: EngineConfig, size_bytes: int) -> int | None:
    return (config.num_kv_blocks + 1) * size_bytes if config.num_kv_blocks is not None else config.kv_bytes


def _memory(target: Target, weights_bytes: int) -> tuple[int, int, int]:
    """Total, what will be free, and the safety margin."""
    if target.is_cpu:
        free_bytes = max(cpu_available_bytes() - weights_bytes, 0)
        return system_total_bytes(), free_bytes, cpu_margin_bytes(free_bytes)
    torch.cuda.empty_cache()  # what an earlier model left in torch's hands counts as taken otherwise
    free_bytes, total_bytes = torch.cuda.mem_get_info(target.device)
    margin = min(max(total_bytes // _GPU_MARGIN_PART, 2**28), 2**30)
    return total_bytes, max(free_bytes - weights_bytes - _GPU_WORKSPACE_BYTES, 0), margin


def activation_bytes(config: EngineConfig, architecture: ModelArchitecture, dtype: torch.dtype) -> int:
    """The widest moment of a step, by formula: a full batch between two products, and the logits of every slot."""
    widest = 4 * architecture.hidden_size + 3 * architecture.intermediate_size
    activations = config.max_num_batched_tokens * widest * dtype.itemsize
    return activations + config.max_num_seqs * architecture.vocab_size * _LOGIT_BYTES
