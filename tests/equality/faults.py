"""Faults of the kinds that paged engines have had, put into the engine from outside: each must be noticed."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import loader
from engine.architecture import ModelArchitecture
from engine.attention import gather_sdpa
from engine.attention.backend import PrefillChunk
from engine.attention.select import Selection, select_backend
from engine.cache.block_pool import BlockPool
from engine.runner.model_runner import BatchInputs
from engine.scheduling.batch import Batch
from engine.scheduling.scheduler import Scheduler


@contextmanager
def shifted_rope() -> Iterator[None]:
    """Rows that continue a sequence are rotated one position too far against those that began it."""
    of = BatchInputs.of

    def shifted(batch: Batch, *args: Any, **options: Any) -> BatchInputs:
        inputs = of(batch, *args, **options)
        late = [torch.full((item.num_tokens,), int(item.start > 0)) for item in batch.items]
        return dataclasses.replace(inputs, positions=inputs.positions + torch.cat(late))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchInputs, "of", shifted)
        yield


@contextmanager
def stale_block() -> Iterator[None]:
    """A prefix is still found by its hash after its block was handed out and written by another."""
    forget, look_up = BlockPool._forget, BlockPool._lookup
    stale: dict[tuple[int, Any], int] = {}

    def forget_nothing(pool: BlockPool, block_id: int) -> None:
        stale[id(pool), pool._prefixes[block_id]] = block_id
        forget(pool, block_id)

    def look_up_stale(pool: BlockPool, wanted: Any) -> int | None:
        found = look_up(pool, wanted)
        block_id = stale.get((id(pool), wanted)) if found is None else found
        # A block that is empty by now cannot be shared; one that somebody holds or left behind can.
        return None if block_id in pool._empty else block_id

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockPool, "_forget", forget_nothing)
        patch.setattr(BlockPool, "_lookup", look_up_stale)
        yield


@contextmanager
def mask_off_by_one() -> Iterator[None]:
    """A row that decodes sees everything but itself."""
    of = BatchInputs.of

    def blind(*args: Any, **options: Any) -> BatchInputs:
        inputs = of(*args, **options)
        lengths: Tensor = (inputs.attention.decode_lengths - 1).clamp(min=1)
        return dataclasses.replace(inputs, attention=dataclasses.replace(inputs.attention, decode_lengths=lengths))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchInputs, "of", blind)
        yield


@contextmanager
def chunk_mask_off_by_one() -> Iterator[None]:
    """A token of a prompt sees the one after it."""

    def lenient(chunk: PrefillChunk, _window: int, dtype: torch.dtype) -> Tensor:
        columns = torch.arange(chunk.start + chunk.num_tokens)
        rows = columns[chunk.start :].unsqueeze(1)
        return torch.zeros(len(rows), len(columns), dtype=dtype).masked_fill_(columns > rows + 1, float("-inf"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather_sdpa, "_causal_mask", lenient)
        yield


@contextmanager
def window_off_by_one() -> Iterator[None]:
    """A sliding window does not count the query itself."""

    def wider(architecture: ModelArchitecture, *args: Any, **options: Any) -> Selection:
        windows = tuple(window and window + 1 for window in architecture.layer_windows)
        return select_backend(dataclasses.replace(architecture, layer_windows=windows), *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "select_backend", wider)
        yield


@contextmanager
def equal_hashes() -> Iterator[None]:
    """A block's hash says how far it lies from the beginning and nothing else: no fault where hits are compared."""
    build = BlockPool.__init__

    def build_with_constant_hash(pool: BlockPool, *args: Any, **options: Any) -> None:
        build(pool, *args, **options | {"hash_block": lambda parent_hash, _token_ids: parent_hash + 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockPool, "__init__", build_with_constant_hash)
        yield


@contextmanager
def wrong_prefix() -> Iterator[None]:
    """Equal hashes, and a hit is believed."""
    with equal_hashes(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockPool, "_lookup", lambda pool, wanted: pool._by_hash.get(wanted.hash))
        yield


@contextmanager
def lost_token() -> Iterator[None]:
    """A sequence that is preempted forgets the last token that it said."""
    schedule = Scheduler.schedule

    def forgetful(scheduler: Scheduler) -> Batch:
        batch = schedule(scheduler)
        for sequence in batch.preempted:
            if sequence.num_new_tokens:
                sequence.token_ids.pop()
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "schedule", forgetful)
        yield


FAULTS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "shifted-rope": shifted_rope,
    "stale-block": stale_block,
    "mask-off-by-one": mask_off_by_one,
    "wrong-prefix": wrong_prefix,
    "lost-token": lost_token,
    "chunk-mask-off-by-one": chunk_mask_off_by_one,
    "window-off-by-one": window_off_by_one,
}
