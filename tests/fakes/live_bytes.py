"""Measures what tensors hold at the worst moment of some work."""

import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the memory of every tensor that is made inside its `with` block for as long as it lives.

    Attributes:
        peak_bytes: the most at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._sizes: dict[int, int] = {}
        self._holders: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {storage.data_ptr() for _, storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for tensor, storage in _storages(result):
            pointer = storage.data_ptr()
            if pointer in self._sizes or pointer not in given:  # not a view of what was there before
                self._sizes.setdefault(pointer, storage.nbytes())
                self._holders[pointer] += 1
                weakref.finalize(tensor, self._drop, pointer)
        self.peak_bytes = max(self.peak_bytes, sum(self._sizes.values()))
        return result

    def _drop(self, pointer: int) -> None:
        self._holders[pointer] -= 1
        if not self._holders[pointer]:
            del self._sizes[pointer], self._holders[pointer]


def _storages(tree: object) -> Iterator[tuple[Tensor, Any]]:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor) and not leaf.is_mkldnn:
            yield leaf, leaf.untyped_storage()
