"""Does a back end compute attention on this machine? Asked before it answers anybody.

One query over many keys in shuffled blocks is where paged kernels have been silently wrong (pytorch#194167).
"""

import math

import torch

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, AttentionInputs, PrefillChunk
from engine.attention.reference import ReferenceAttention
from engine.cache.kv_cache import KVCache

_LENGTHS = (3000, 1)
_CHUNK = (37, 75)  # tokens before it and of it


def agrees_with_reference(
    backend: AttentionBackend, architecture: ModelArchitecture, dtype: torch.dtype, device: torch.device, *,
    block_size: int = 16,
) -> bool:  # fmt: skip
    """Two decode rows, of 3,000 tokens and of one, and a chunk, in one layer; within the rounding of `dtype`."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device=device, dtype=dtype)

    heads, kv_heads, head_dim = architecture.num_heads, architecture.num_kv_heads, architecture.head_dim
    rows = len(_LENGTHS) + _CHUNK[1]
    q, k, v = draw(rows, heads, head_dim), draw(rows, kv_heads, head_dim), draw(rows, kv_heads, head_dim)
    inputs, num_blocks = _inputs(generator, device, block_size)
    past = draw(2, num_blocks, block_size, kv_heads, head_dim)
    outputs = []
    for each in (backend, ReferenceAttention(backend.windows)):
        cache = KVCache(
            architecture, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=device, num_layers=1
        )
        for side, tensor in zip(cache.layer(0), past, strict=True):
            side.copy_(tensor)
        outputs.append(each.prepare(inputs, cache)(0, q, k, v).float())
    tolerance = 8 * torch.finfo(dtype).eps
    return torch.allclose(outputs[0], outputs[1], rtol=tolerance, atol=tolerance)


def _inputs(generator: torch.Generator, device: torch.device, block_size: int) -> tuple[AttentionInputs, int]:
    """The layout, and how many blocks it needs with the one for padding."""
    ends = [*_LENGTHS, sum(_CHUNK)]
    sizes = [math.ceil(end / block_size) for end in ends]
    order = (torch.randperm(sum(sizes), generator=generator) + 1).tolist()
    tables = [order[sum(sizes[:index]) :][: sizes[index]] for index in range(len(sizes))]
    new = [(length - 1, length) for length in _LENGTHS] + [(_CHUNK[0], sum(_CHUNK))]
    slots = [
        table[at // block_size] * block_size + at % block_size
        for table, span in zip(tables, new, strict=True)
        for at in range(*span)
    ]
    padded = [table + [0] * (max(sizes) - len(table)) for table in tables[: len(_LENGTHS)]]
    chunk = PrefillChunk(len(_LENGTHS), _CHUNK[1], _CHUNK[0], torch.tensor(tables[-1], device=device))
    inputs = AttentionInputs(
        slots=torch.tensor(slots, device=device),
        num_decode=len(_LENGTHS),
        decode_block_tables=torch.tensor(padded, device=device),
        decode_lengths=torch.tensor(_LENGTHS, device=device),
        chunks=(chunk,),
    )
    return inputs, sum(sizes) + 1
