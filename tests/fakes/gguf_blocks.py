"""Random blocks of ggml's quantisations."""

import numpy as np

from engine.gguf_file import TENSOR_KINDS

KINDS = {kind.name: kind for kind in TENSOR_KINDS.values()}
# Where each block keeps its float16 fields; any other byte may be anything.
HALVES = {"Q4_1": (0, 4), "Q5_1": (0, 4), "Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 210)}


def random_blocks(name: str, num_blocks: int, seed: int, *, scale: float = 0.05) -> np.ndarray:
    """(num_blocks, bytes of a block) random bytes whose float16 fields are finite, normal with this deviation."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, (num_blocks, KINDS[name].block_bytes), dtype=np.uint8)
    start, stop = HALVES.get(name, (0, 2))
    halves = generator.normal(0, scale, (num_blocks, (stop - start) // 2)).astype(np.float16)
    blocks[:, start:stop] = halves.view(np.uint8)
    return blocks
