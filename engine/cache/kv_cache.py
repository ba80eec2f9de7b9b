"""The tensors of the paged KV cache. Which block belongs to whom is the block pool's business."""

import contextlib
import mmap

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.errors import CacheAllocationError


def block_bytes(architecture: ModelArchitecture, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block: K and V of every layer for `block_size` tokens."""
    return architecture.kv_elements_per_token * block_size * dtype.itemsize


class KVCache:
    """K and V of every layer in blocks.

    One tensor (layers, 2, blocks, block_size, kv_heads, head_dim). Block 0 takes what padding writes.
    On a CPU the pages come from the kernel, zeroed, when they are first written: a large cache costs nothing until
    it is used, and what padding reads is never NaN.
    """

    def __init__(
        self, architecture: ModelArchitecture, *, num_blocks: int, block_size: int, dtype: torch.dtype,
        device: torch.device, num_layers: int | None = None,
    ) -> None:  # fmt: skip
        """`num_blocks` counts the padding block; `num_layers` are the architecture's unless a test wants fewer."""
        self.block_size = block_size
        self._num_layers = architecture.num_layers
        self._token_shape = (architecture.num_kv_heads, architecture.head_dim)
        self._dtype = dtype
        self._device = device
        self._layers: tuple[tuple[Tensor, Tensor], ...] = ()
        self.num_blocks = 0
        self._allocate(num_blocks)

    def resize(self, num_blocks: int) -> None:
        """Hold this many blocks, the padding block included, and nothing of the old content.

        The old memory goes before the new is asked for: never are both there.

        Raises:
            CacheAllocationError: there is no memory for it; then the cache is empty, of its old size.
        """
        old_num_blocks = self.num_blocks
        self._layers = ()
        try:
            self._allocate(num_blocks)
        except (RuntimeError, OSError, MemoryError, OverflowError) as error:  # torch's, mmap's
            self._allocate(old_num_blocks)
            raise CacheAllocationError(
                num_blocks=num_blocks - 1, kept_blocks=old_num_blocks - 1, reason=str(error)
            ) from error

    def _allocate(self, num_blocks: int) -> None:
        shape = (self._num_layers, 2, num_blocks, self.block_size, *self._token_shape)
        data = _zeros_on_demand(shape, self._dtype) if self._device.type == "cpu" else torch.zeros(
            shape, dtype=self._dtype, device=self._device
        )  # fmt: skip
        self._layers = tuple((layer[0], layer[1]) for layer in data)
        self.num_blocks = num_blocks

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer, each (blocks, block_size, kv_heads, head_dim)."""
        return self._layers[index]

    def store(self, index: int, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Write k and v (tokens, kv_heads, head_dim) to slots (tokens,): block * block_size + offset."""
        for cache, new in zip(self._layers[index], (k, v), strict=True):
            cache.view(-1, *new.shape[1:]).index_copy_(0, slots, new)

    def wipe(self, block_ids: list[int]) -> None:
        """Zero these blocks. Attention hides what lies behind a sequence's end, but NaN would show all the same."""
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self._device)
        for keys_and_values in self._layers:
            for cache in keys_and_values:
                cache.index_fill_(0, ids, 0)


def _zeros_on_demand(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    # Private: counted as this process's own memory, and a page that is only read costs nothing.
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Each layer has a region of its own: with huge pages the first block would touch 2 MiB in every one of them.
    with contextlib.suppress(OSError):  # a kernel without huge pages does not know the word
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).view(shape)
