"""Builds a loaded model from a configuration: weights, memory plan, cache, scheduler, runner."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.architecture import ModelArchitecture
from engine.attention.select import select_backend
from engine.cache.block_pool import BlockPool
from engine.cache.kv_cache import KVCache, block_bytes
from engine.config import EngineConfig
from engine.errors import UsageError
from engine.events import LoadProgress, ModelInfo
from engine.memory.measure import cpu_cache_room_bytes, system_total_bytes
from engine.memory.plan import MemoryPlan, MemorySnapshot, plan
from engine.model.decoder import Decoder, Weights, load_decoder
from engine.runner.model_runner import ModelRunner
from engine.scheduling.scheduler import Scheduler
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.weights.random import RandomWeights
from engine.weights.source import open_weights

Progress = Callable[[LoadProgress], None]

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_MAX_LOGIT_COPIES = 4  # logits, their float64 copy and the sampler's sorted copies


@dataclass(slots=True)
class LoadedModel:
    """Everything that belongs to one loaded model."""

    info: ModelInfo
    scheduler: Scheduler
    runner: ModelRunner
    tokenizer: Tokenizer | None
    chat_template: ChatTemplate | None
    eos_token_ids: frozenset[int]
    vocab_size: int

    def close(self) -> None:
        """Drop every tensor."""
        del self.runner


@dataclass(frozen=True, slots=True)
class _Target:
    """Where and in which number format to compute."""

    device: torch.device
    dtype: torch.dtype
    description: str


def load_model(config: EngineConfig, on_progress: Progress) -> LoadedModel:
    """See Engine.load."""
    started = time.monotonic()
    target = _target(config)
    on_progress(LoadProgress("Reading the model's header", 0.0))
    weights = _open(config)
    try:
        tokenizer, chat_template = _text_side(config)
        architecture = weights.architecture
        memory_plan = _plan(config, architecture, target)
        decoder = _load_decoder(weights, target, memory_plan.max_model_len_tokens, on_progress)
    finally:
        weights.close()
    on_progress(LoadProgress("Preparing the KV cache", 0.97))
    runner, scheduler = _serving_side(config, decoder, target, memory_plan)
    info = _info(config, decoder, target, memory_plan, load_s=time.monotonic() - started)
    return LoadedModel(
        info=info,
        scheduler=scheduler,
        runner=runner,
        tokenizer=tokenizer,
        chat_template=chat_template,
        eos_token_ids=frozenset(architecture.eos_token_ids),
        vocab_size=architecture.vocab_size,
    )


def _target(config: EngineConfig) -> _Target:
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        threads = config.threads or os.cpu_count() or 1
        torch.set_num_threads(threads)
        return _Target(torch.device("cpu"), _dtype(config, _best_cpu_dtype()), f"CPU, {threads} threads")
    if not torch.cuda.is_available():
        raise UsageError(f"The device {config.device!r} was asked for, but torch sees no GPU. Use --device cpu.")
    device = torch.device("cuda" if config.device == "auto" else config.device)
    return _Target(device, _dtype(config, torch.bfloat16), torch.cuda.get_device_name(device))


def _best_cpu_dtype() -> torch.dtype:
    """bf16 where the CPU multiplies it natively (AVX512-BF16, AMX); elsewhere it would be emulated."""
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32  # noqa: SLF001


def _dtype(config: EngineConfig, best: torch.dtype) -> torch.dtype:
    if config.dtype == "auto":
        return best
    if config.dtype not in _DTYPES:
        raise UsageError(f"The dtype {config.dtype!r} is unknown; use auto, {', '.join(_DTYPES)}.")
    return _DTYPES[config.dtype]


def _open(config: EngineConfig) -> Weights:
    return RandomWeights(config.random_weights) if config.random_weights else open_weights(Path(config.model))


def _text_side(config: EngineConfig) -> tuple[Tokenizer | None, ChatTemplate | None]:
    if config.random_weights:
        return None, None
    tokenizer = load_tokenizer(Path(config.model))
    return tokenizer, ChatTemplate(tokenizer)


def _plan(config: EngineConfig, architecture: ModelArchitecture, target: _Target) -> MemoryPlan:
    """How many blocks fit. An explicit number of blocks is taken as asked, or refused; it is never cut."""
    size_bytes = block_bytes(architecture, config.block_size, target.dtype)
    max_model_len = min(config.max_model_len or architecture.max_position_embeddings,
                        architecture.max_position_embeddings)  # fmt: skip
    requested = config.kv_bytes
    max_num_seqs = config.max_num_seqs
    if config.num_kv_blocks is not None:
        requested = (config.num_kv_blocks + 1) * size_bytes
        max_num_seqs = max(max_num_seqs, config.num_kv_blocks)
    return plan(
        MemorySnapshot(
            total_bytes=_total_bytes(target),
            free_bytes=_free_bytes(target),
            allocated_bytes=0,
            peak_bytes=_activation_bytes(config, architecture, target.dtype),
            graphs_bytes=0,
            margin_bytes=0,
            block_bytes=size_bytes,
            block_size_tokens=config.block_size,
            max_model_len_tokens=max_model_len,
            max_num_seqs=max_num_seqs,
            own_limit_fraction=None,
            own_bytes=None,
            kv_bytes_requested=requested,
        )
    )


def _total_bytes(target: _Target) -> int:
    if target.device.type == "cpu":
        return system_total_bytes()
    return int(torch.cuda.mem_get_info(target.device)[1])


def _free_bytes(target: _Target) -> int:
    if target.device.type == "cpu":
        return cpu_cache_room_bytes()
    return int(torch.cuda.mem_get_info(target.device)[0]) // 2


def _activation_bytes(config: EngineConfig, architecture: ModelArchitecture, dtype: torch.dtype) -> int:
    """The widest moment of a step: activations of a full batch, and the logits of every slot."""
    widest = 4 * architecture.hidden_size + 3 * architecture.intermediate_size
    activations = config.max_num_batched_tokens * widest * dtype.itemsize
    logits = config.max_num_seqs * architecture.vocab_size * 8 * _MAX_LOGIT_COPIES
    return activations + logits


def _load_decoder(
    weights: Weights, target: _Target, max_positions: int, on_progress: Progress
) -> Decoder:  # fmt: skip
    num_layers = weights.architecture.num_layers

    def on_layer(index: int) -> None:
        share = 0.05 + 0.9 * index / num_layers
        on_progress(LoadProgress(f"Reading weights, layer {index + 1} of {num_layers}", share))

    with torch.inference_mode():
        return load_decoder(
            weights, dtype=target.dtype, device=target.device, max_positions=max_positions, on_layer=on_layer
        )


def _serving_side(
    config: EngineConfig, decoder: Decoder, target: _Target, memory_plan: MemoryPlan
) -> tuple[ModelRunner, Scheduler]:
    cache = KVCache(
        decoder.architecture,
        num_blocks=memory_plan.allocated_blocks,
        block_size=config.block_size,
        dtype=target.dtype,
        device=target.device,
    )
    pool = BlockPool(memory_plan.usable_blocks, config.block_size, prefix_caching=config.prefix_caching)
    scheduler = Scheduler(
        pool,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=memory_plan.max_model_len_tokens,
    )
    return ModelRunner(decoder, cache, select_backend(target.device), target.device), scheduler


def _info(
    config: EngineConfig, decoder: Decoder, target: _Target, memory_plan: MemoryPlan, *, load_s: float
) -> ModelInfo:
    architecture = decoder.architecture
    return ModelInfo(
        name=architecture.name,
        architecture=architecture.family,
        dtype=str(target.dtype).removeprefix("torch."),
        device=target.description,
        attention=select_backend(target.device).name,
        num_parameters=architecture.num_parameters,
        weights_bytes=architecture.num_parameters * target.dtype.itemsize,
        block_size_tokens=config.block_size,
        block_bytes=block_bytes(architecture, config.block_size, target.dtype),
        num_blocks=memory_plan.usable_blocks,
        max_model_len_tokens=memory_plan.max_model_len_tokens,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        load_s=load_s,
    )
