"""Builds a loaded model from a configuration: weights, memory plan, cache, scheduler, runner."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.attention.backend import AttentionBackend
from engine.attention.select import select_backend
from engine.cache.block_pool import BlockPool
from engine.cache.kv_cache import KVCache, block_bytes
from engine.config import EngineConfig
from engine.events import LoadProgress, ModelInfo
from engine.memory.measure import admission_floor_bytes
from engine.memory.plan import MemoryPlan
from engine.memory.pressure import MemoryGate
from engine.model.decoder import Decoder, Weights, load_decoder
from engine.model.layer_ops import LayerOps
from engine.model.select_ops import select_ops
from engine.native import load_kernels
from engine.runner.cuda_graphs import CudaCapture, DecodeGraphs
from engine.runner.model_runner import ModelRunner
from engine.scheduling.scheduler import Scheduler
from engine.target import Target, choose_target, loaded_weights_bytes, plan_cache
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.weights.random import RandomWeights
from engine.weights.source import open_weights

Progress = Callable[[LoadProgress], None]


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
        """Drop every tensor; a second time changes nothing."""
        if hasattr(self, "runner"):
            del self.runner


def load_model(config: EngineConfig, on_progress: Progress) -> LoadedModel:
    """See Engine.load."""
    started = time.monotonic()
    target = choose_target(config)
    if not target.is_cpu:
        torch.cuda.set_device(target.device)  # of this thread, where every step runs: kernels are launched there
    on_progress(LoadProgress("Reading the model's header", 0.0))
    weights = _open(config)
    try:
        tokenizer, chat_template = _text_side(config)
        architecture = weights.architecture
        memory_plan = plan_cache(config, architecture, target)
        on_progress(LoadProgress("Preparing the kernels", 0.02))
        kernels = load_kernels(head_dim=architecture.head_dim, dtype=target.dtype, device=target.device)
        ops = select_ops(architecture, kernels, dtype=target.dtype, device=target.device)
        decoder = _load_decoder(weights, target, memory_plan.max_model_len_tokens, ops, on_progress)
    finally:
        weights.close()
    on_progress(LoadProgress("Preparing the KV cache and the first step", 0.96))
    selection = select_backend(
        architecture, kernels, dtype=target.dtype, device=target.device, block_size=config.block_size
    )  # fmt: skip
    backend = selection.backend
    runner, scheduler = _serving_side(config, decoder, backend, target, memory_plan)
    identity = "" if tokenizer is None else f"{architecture.name} {architecture.num_parameters} {tokenizer.digest}"
    info = _info(config, decoder, backend, target, memory_plan, identity=identity, load_s=time.monotonic() - started)
    return LoadedModel(
        info=info,
        scheduler=scheduler,
        runner=runner,
        tokenizer=tokenizer,
        chat_template=chat_template,
        eos_token_ids=frozenset(architecture.eos_token_ids),
        vocab_size=architecture.vocab_size,
    )


def _open(config: EngineConfig) -> Weights:
    return RandomWeights(config.random_weights) if config.random_weights else open_weights(Path(config.model))


def _text_side(config: EngineConfig) -> tuple[Tokenizer | None, ChatTemplate | None]:
    if config.random_weights:
        return None, None
    tokenizer = load_tokenizer(Path(config.model))
    return tokenizer, ChatTemplate(tokenizer)


def _load_decoder(
    weights: Weights, target: Target, max_positions: int, ops: LayerOps, on_progress: Progress
) -> Decoder:  # fmt: skip
    num_layers = weights.architecture.num_layers

    def on_layer(index: int) -> None:
        share = 0.05 + 0.9 * index / num_layers
        on_progress(LoadProgress(f"Reading weights, layer {index + 1} of {num_layers}", share))

    with torch.inference_mode():
        return load_decoder(
            weights, dtype=target.dtype, device=target.device, max_positions=max_positions, ops=ops, on_layer=on_layer,
        )  # fmt: skip


def _serving_side(
    config: EngineConfig, decoder: Decoder, backend: AttentionBackend, target: Target, memory_plan: MemoryPlan
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
        # The length that was wanted: where the cache is what ends an answer, the scheduler has to say so.
        max_model_len=memory_plan.snapshot.max_model_len_tokens,
        policy=config.policy,
        max_chunk_tokens=config.max_chunk_tokens,
        gate=_gate(memory_plan) if target.is_cpu else None,
    )
    captures = config.cuda_graphs and backend.is_capturable
    make_graphs = functools.partial(_graphs, config, decoder, backend, cache, target, memory_plan) if captures else None
    return ModelRunner(decoder, cache, backend, target.device, make_graphs=make_graphs), scheduler


def _graphs(
    config: EngineConfig, decoder: Decoder, backend: AttentionBackend, cache: KVCache, target: Target,
    memory_plan: MemoryPlan,
) -> DecodeGraphs:  # fmt: skip
    """For the longest context that the rotary tables hold: a cache that grows later needs no other graphs."""
    return DecodeGraphs(
        decoder, backend, cache, max_rows=config.max_num_seqs, max_tokens=memory_plan.max_model_len_tokens,
        device=target.device, capture=CudaCapture(target.device),
    )  # fmt: skip


def _gate(memory_plan: MemoryPlan) -> MemoryGate:
    """System memory can be short long after the plan; a GPU's blocks are allocated when it is made."""
    taken = memory_plan.snapshot
    floor_bytes = admission_floor_bytes(total_bytes=taken.total_bytes, margin_bytes=taken.margin_bytes)
    return MemoryGate(floor_bytes=floor_bytes)


def _info(
    config: EngineConfig,
    decoder: Decoder,
    backend: AttentionBackend,
    target: Target,
    memory_plan: MemoryPlan,
    *,
    identity: str,
    load_s: float,
) -> ModelInfo:
    architecture = decoder.architecture
    return ModelInfo(
        name=architecture.name,
        architecture=architecture.family,
        dtype=str(target.dtype).removeprefix("torch."),
        device=target.description,
        attention=backend.name,
        num_parameters=architecture.num_parameters,
        weights_bytes=loaded_weights_bytes(architecture, target),
        block_size_tokens=config.block_size,
        block_bytes=block_bytes(architecture, config.block_size, target.dtype),
        num_blocks=memory_plan.usable_blocks,
        max_model_len_tokens=memory_plan.max_model_len_tokens,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        load_s=load_s,
        identity=identity,
        policy=config.policy.value,
    )
