"""The tensors of the paged KV cache. Which block belongs to whom is the block pool's business."""

import contextlib
import mmap

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture


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
        device: torch.device,
    ) -> None:  # fmt: skip
        """`num_blocks` counts the padding block."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (
            architecture.num_layers, 2, num_blocks, block_size, architecture.num_kv_heads, architecture.head_dim,
        )  # fmt: skip
        self._data = _zeros_on_demand(shape, dtype) if device.type == "cpu" else torch.zeros(
            shape, dtype=dtype, device=device
        )  # fmt: skip
        self._layers = tuple((layer[0], layer[1]) for layer in self._data)

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer, each (blocks, block_size, kv_heads, head_dim)."""
        return self._layers[index]

    def store(self, index: int, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Write k and v (tokens, kv_heads, head_dim) to slots (tokens,): block * block_size + offset."""
        for cache, new in zip(self._layers[index], (k, v), strict=True):
            cache.view(-1, *new.shape[1:]).index_copy_(0, slots, new)


def _zeros_on_demand(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    # Private: counted as this process's own memory, and a page that is only read costs nothing.
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Each layer has a region of its own: with huge pages the first block would touch 2 MiB in every one of them.
    with contextlib.suppress(OSError):  # a kernel without huge pages does not know the word
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).view(shape)
