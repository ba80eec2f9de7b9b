"""Does a back end compute attention on this machine? Asked before it answers anybody.

One query over many keys in shuffled blocks is where paged kernels have been silently wrong (pytorch#194167).
"""

import math

import torch

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, AttentionInputs
from engine.attention.reference import ReferenceAttention
from engine.cache.kv_cache import KVCache

_LENGTHS = (3000, 1)
_BLOCK_SIZE = 16


def agrees_with_reference(
    backend: AttentionBackend, architecture: ModelArchitecture, dtype: torch.dtype, device: torch.device
) -> bool:
    """Two decode rows, of 3,000 tokens and of one, in one layer; within the rounding of `dtype`."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device=device, dtype=dtype)

    heads, kv_heads, head_dim = architecture.num_heads, architecture.num_kv_heads, architecture.head_dim
    rows = len(_LENGTHS)
    q, k, v = draw(rows, heads, head_dim), draw(rows, kv_heads, head_dim), draw(rows, kv_heads, head_dim)
    inputs = _inputs(generator, device)
    num_blocks = int(inputs.decode_block_tables.max()) + 1
    past = draw(2, num_blocks, _BLOCK_SIZE, kv_heads, head_dim)
    outputs = []
    for each in (backend, ReferenceAttention(backend.windows)):
        cache = KVCache(
            architecture, num_blocks=num_blocks, block_size=_BLOCK_SIZE, dtype=dtype, device=device, num_layers=1
        )
        for side, tensor in zip(cache.layer(0), past, strict=True):
            side.copy_(tensor)
        outputs.append(each.prepare(inputs, cache)(0, q, k, v).float())
    tolerance = 8 * torch.finfo(dtype).eps
    return torch.allclose(outputs[0], outputs[1], rtol=tolerance, atol=tolerance)


def _inputs(generator: torch.Generator, device: torch.device) -> AttentionInputs:
    sizes = [math.ceil(length / _BLOCK_SIZE) for length in _LENGTHS]
    order = (torch.randperm(sum(sizes), generator=generator) + 1).tolist()
    tables = [order[: sizes[0]], order[sizes[0] :] + [0] * (sizes[0] - sizes[1])]
    last = [length - 1 for length in _LENGTHS]
    slots = [table[at // _BLOCK_SIZE] * _BLOCK_SIZE + at % _BLOCK_SIZE for table, at in zip(tables, last, strict=True)]
    return AttentionInputs(
        slots=torch.tensor(slots, device=device),
        num_decode=len(_LENGTHS),
        decode_block_tables=torch.tensor(tables, device=device),
        decode_lengths=torch.tensor(_LENGTHS, device=device),
        chunks=(),
    )
