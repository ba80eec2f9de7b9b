"""The cache's tensors: layout, storing, and pages that are touched only when used."""

import json
import subprocess
import sys

import pytest
import torch

from engine.architecture import ModelArchitecture
from engine.cache.kv_cache import KVCache, block_bytes

SHAPE = ModelArchitecture(
    family="llama", name="tiny", vocab_size=96, hidden_size=64, intermediate_size=96, num_layers=3, num_heads=4,
    num_kv_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=256,
)  # fmt: skip


def make_cache(dtype: torch.dtype = torch.float32, num_blocks: int = 5, block_size: int = 16) -> KVCache:
    return KVCache(SHAPE, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_layers_have_keys_and_values_of_their_own(dtype: torch.dtype) -> None:
    cache = make_cache(dtype)
    tensors = [tensor for index in range(SHAPE.num_layers) for tensor in cache.layer(index)]
    assert {tensor.shape for tensor in tensors} == {(5, 16, 2, 8)}
    assert {tensor.dtype for tensor in tensors} == {dtype}
    for number, tensor in enumerate(tensors):
        assert not tensor.any(), "the kernel gives zeroed pages"
        tensor.fill_(number + 1)
    assert [tensor.unique().tolist() for tensor in tensors] == [[number + 1.0] for number in range(len(tensors))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("block_size", [16, 256])
def test_block_bytes_are_the_tensors(dtype: torch.dtype, block_size: int) -> None:
    cache = make_cache(dtype, num_blocks=3, block_size=block_size)
    held = sum(tensor.nbytes for index in range(SHAPE.num_layers) for tensor in cache.layer(index))
    assert held == 3 * block_bytes(SHAPE, block_size, dtype)


def test_store_writes_each_row_to_its_slot_and_nothing_else() -> None:
    cache = make_cache()
    slots = [3 * 16 + 15, 0, 4 * 16, 16]
    k, v = torch.randn(4, 2, 8), torch.randn(4, 2, 8)
    cache.store(1, k, v, torch.tensor(slots))
    keys, values = (tensor.flatten(0, 1) for tensor in cache.layer(1))
    assert torch.equal(keys[slots], k)
    assert torch.equal(values[slots], v)
    others = [slot for slot in range(5 * 16) if slot not in slots]
    assert not keys[others].any()
    assert not values[others].any()
    assert not any(tensor.any() for index in (0, 2) for tensor in cache.layer(index))


@pytest.mark.parametrize("num_blocks", [2, 5, 9])
def test_another_size_is_a_new_cache(num_blocks: int) -> None:
    cache = make_cache()
    for index in range(SHAPE.num_layers):
        for tensor in cache.layer(index):
            tensor.fill_(1.0)
    cache.resize(num_blocks)
    assert cache.num_blocks == num_blocks
    for index in range(SHAPE.num_layers):
        assert [tensor.shape for tensor in cache.layer(index)] == [(num_blocks, 16, 2, 8)] * 2
        assert not any(tensor.any() for tensor in cache.layer(index))


TWO_GIB = """
import json, torch
from engine.architecture import ModelArchitecture
from engine.cache.kv_cache import KVCache, block_bytes

shape = ModelArchitecture(
    family="llama", name="tiny", vocab_size=96, hidden_size=576, intermediate_size=96, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, rms_norm_eps=1e-6, rope_theta=1e4, max_position_embeddings=8192,
)

def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon", "RssShmem")}

size = block_bytes(shape, 16, torch.bfloat16)
warm_up = torch.zeros(1000).sum()
before = resident()
cache = KVCache(
    shape, num_blocks=2 * 2**30 // size, block_size=16, dtype=torch.bfloat16, device=torch.device("cpu")
)
made = resident()
read = sum(float(cache.layer(layer)[0][:1000:16].float().sum()) for layer in range(30))
looked = resident()
for layer in range(30):
    for tensor in cache.layer(layer):
        tensor[1:101] = 1
print(json.dumps({"before": before, "made": made, "looked": looked, "used": resident(), "block": size}))
"""


def test_a_large_cache_takes_memory_only_where_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", TWO_GIB], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    mib = 2**20
    assert seen["made"]["VmRSS"] - seen["before"]["VmRSS"] < 16 * mib, "2 GiB were only promised"
    assert seen["looked"]["RssAnon"] - seen["made"]["RssAnon"] < 16 * mib, "reading takes nothing"
    grown = seen["used"]["RssAnon"] - seen["looked"]["RssAnon"]
    # Two partial pages at both ends of each of the 60 regions, and what the interpreter itself takes meanwhile.
    assert 100 * seen["block"] <= grown + 4 * mib <= 100 * seen["block"] + 16 * mib
    assert seen["used"]["RssShmem"] == seen["before"]["RssShmem"], "it is this process's own memory, shared with nobody"


def test_wiping_zeroes_these_blocks_of_every_layer() -> None:
    cache = make_cache()
    for index in range(SHAPE.num_layers):
        for tensor in cache.layer(index):
            tensor.fill_(float("nan"))
    cache.wipe([2, 4])
    cache.wipe([])
    for index in range(SHAPE.num_layers):
        for tensor in cache.layer(index):
            assert not tensor[[2, 4]].any()
            assert tensor[[0, 1, 3]].isnan().all()
