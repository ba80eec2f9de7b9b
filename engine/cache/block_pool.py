"""Which KV blocks are free, held or kept for their prefix. Plain bookkeeping: no tensors, no scheduling policy.

Block ids run from 1 to `num_blocks`; block 0 is where padding writes and is never handed out. A block that is full and
computed can be registered as a prefix; it then keeps its content after its last holder gave it back, until the block
is needed for something else.

A prefix is found by a hash chain, but a hit is believed only after comparing the token ids and the parent block. The
parent's id is enough to name everything before it, because a parent outlives its children: whoever holds a block holds
the blocks before it, tables are given back tail first, and the block given back first is evicted first.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

PADDING_BLOCK = 0
ROOT_HASH = 0

HashBlock = Callable[[int, tuple[int, ...]], int]
"""From the parent's hash and a block's token ids to the block's hash."""


class IntegrityError(RuntimeError):
    """The books do not add up: a defect of ours, never of the input."""


def hash_block(parent_hash: int, token_ids: tuple[int, ...]) -> int:
    """Hash of a block and of everything before it, 64 bits. Equal hashes are only a reason to compare."""
    return hash((parent_hash, token_ids))


# Compared at every hit and built for every block: a frozen dataclass takes four times as long.
class _Prefix(NamedTuple):
    """What a registered block holds; `parent_id` is 0 for the first block of a prompt."""

    hash: int
    parent_id: int
    token_ids: tuple[int, ...]


class BlockPool:
    """Hands out KV blocks, shares equal prefixes and takes blocks back.

    A block table is the list of the blocks of one sequence in the order of its tokens.

    Args:
        num_blocks: usable blocks, without the padding block.
        block_size: tokens in one block.
        prefix_caching: whether blocks are registered and found again.
        hash_block: replaces the hash function, for tests.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        hash_block: HashBlock = hash_block,
    ) -> None:
        assert num_blocks >= 1, "a pool needs a block"
        assert block_size >= 1, "a block needs a token"
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._hash_block = hash_block
        self._ref_counts = [0] * (num_blocks + 1)
        self._prefixes: list[_Prefix | None] = [None] * (num_blocks + 1)
        self._by_hash: dict[int, int] = {}
        # A stack: blocks that were touched already are used again before untouched ones.
        self._empty = list(range(num_blocks, PADDING_BLOCK, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first

    @property
    def num_free(self) -> int:
        """Blocks that may be allocated now, empty or cached."""
        return len(self._empty) + len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds; a shared block counts once."""
        return self.num_blocks - self.num_free

    @property
    def num_cached(self) -> int:
        """The part of the free blocks that still holds a prefix."""
        return len(self._cached)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the whole pool can hold."""
        return self.num_blocks * self.block_size

    @property
    def cached_block_ids(self) -> tuple[int, ...]:
        """The free blocks that still hold a prefix, next to be evicted first."""
        return tuple(self._cached)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that this many tokens fill or begin."""
        return -(-num_tokens // self.block_size)

    def ref_count(self, block_id: int) -> int:
        """How many block tables hold this block."""
        return self._ref_counts[block_id]

    def num_free_among(self, block_ids: Iterable[int]) -> int:
        """How many of these blocks nobody holds: what sharing them takes from the free blocks."""
        return sum(not self._ref_counts[block_id] for block_id in block_ids)

    def allocate(self, count: int) -> list[int]:
        """Take blocks without content; cached prefixes give way only when no empty block is left, oldest first.

        The caller has seen to it that `count` is at most `num_free`.
        """
        assert count <= self.num_free, f"{count} blocks were asked for, {self.num_free} are free"
        return [self._take_free() for _ in range(count)]

    def find_prefix(self, token_ids: Sequence[int], *, max_blocks: int) -> list[int]:
        """The longest chain of registered blocks that begins these tokens. Looks only; `share` takes them."""
        found: list[int] = []
        if not self.prefix_caching:
            return found
        parent_id, parent_hash = PADDING_BLOCK, ROOT_HASH
        size = self.block_size
        for index in range(min(max_blocks, len(token_ids) // size)):
            content = tuple(token_ids[index * size : (index + 1) * size])
            parent_hash = self._hash_block(parent_hash, content)
            block_id = self._lookup(_Prefix(parent_hash, parent_id, content))
            if block_id is None:
                break
            found.append(block_id)
            parent_id = block_id
        return found

    def share(self, block_ids: Iterable[int]) -> None:
        """Hold blocks that `find_prefix` found."""
        for block_id in block_ids:
            if not self._ref_counts[block_id]:
                del self._cached[block_id]
            self._ref_counts[block_id] += 1

    def register(self, block_table: list[int], token_ids: Sequence[int], *, start: int, stop: int) -> int:
        """Make the table's blocks `start` to `stop` (exclusive) findable; they must be full and computed.

        Where another block already holds the same prefix, the table takes that one and gives its own back: equal
        prompts that were computed in one step end up sharing, and a chain never hangs on a copy that can vanish.

        Returns:
            How many leading blocks of the table are registered now. Less than `stop` where a different prefix of the
            same hash stands in the way, or where prefixes are not kept at all.
        """
        if not self.prefix_caching:
            return start
        for index in range(start, stop):
            if not self._register_block(block_table, token_ids, index):
                return index
        return stop

    def release(self, block_table: list[int]) -> None:
        """Give a whole table back, tail first, and leave it empty. Registered blocks stay cached."""
        while block_table:
            self._drop(block_table.pop())

    def forget(self, block_table: Sequence[int]) -> list[int]:
        """Let nobody find the blocks that only this table holds, nor what hangs on them: their content is wrong.

        A block that somebody else holds as well stays; whoever computes with it finds out by himself.

        Returns:
            The blocks whose content has to go before they are used again.
        """
        wrong = {block_id: None for block_id in block_table if self._ref_counts[block_id] == 1}
        for block_id in wrong:
            if self._prefixes[block_id] is not None:
                self._forget(block_id)
        # What hangs on a block that only this table holds is in this table too, or free.
        while hanging := [each for each in self._cached if self._parent_of(each) in wrong]:
            for block_id in hanging:
                wrong[block_id] = None
                self._forget(block_id)
                del self._cached[block_id]
                self._empty.append(block_id)
        return list(wrong)

    def check_integrity(self, block_tables: Iterable[Sequence[int]]) -> None:
        """Recompute everything from all block tables there are.

        Raises:
            IntegrityError: with the first thing that does not add up.
        """
        self._check_holders([list(table) for table in block_tables])
        self._check_free_blocks()
        self._check_prefixes()

    def _take_free(self) -> int:
        if self._empty:
            block_id = self._empty.pop()
        else:
            block_id, _ = self._cached.popitem(last=False)
            self._forget(block_id)
        self._ref_counts[block_id] = 1
        return block_id

    def _forget(self, block_id: int) -> None:
        prefix = self._prefixes[block_id]
        assert prefix is not None
        del self._by_hash[prefix.hash]
        self._prefixes[block_id] = None

    def _parent_of(self, block_id: int) -> int:
        prefix = self._prefixes[block_id]
        assert prefix is not None, f"block {block_id} is cached, but not registered"
        return prefix.parent_id

    def _lookup(self, wanted: _Prefix) -> int | None:
        """The block that holds exactly this content after exactly this parent."""
        block_id = self._by_hash.get(wanted.hash)
        return block_id if block_id is not None and self._prefixes[block_id] == wanted else None

    def _register_block(self, block_table: list[int], token_ids: Sequence[int], index: int) -> bool:
        prefix = self._prefix_of(block_table, token_ids, index)
        block_id = block_table[index]
        holder_id = self._by_hash.get(prefix.hash)
        if holder_id is None:
            self._by_hash[prefix.hash] = block_id
            self._prefixes[block_id] = prefix
            return True
        if self._prefixes[holder_id] != prefix:
            return False
        if holder_id != block_id:
            self.share((holder_id,))
            block_table[index] = holder_id
            self._drop(block_id)
        return True

    def _prefix_of(self, block_table: Sequence[int], token_ids: Sequence[int], index: int) -> _Prefix:
        parent_id, parent_hash = PADDING_BLOCK, ROOT_HASH
        if index:
            parent_id = block_table[index - 1]
            parent = self._prefixes[parent_id]
            assert parent is not None, "blocks are registered from the first on"
            parent_hash = parent.hash
        content = tuple(token_ids[index * self.block_size : (index + 1) * self.block_size])
        assert len(content) == self.block_size, "only full blocks are registered"
        return _Prefix(self._hash_block(parent_hash, content), parent_id, content)

    def _drop(self, block_id: int) -> None:
        self._ref_counts[block_id] -= 1
        assert self._ref_counts[block_id] >= 0, f"block {block_id} was given back twice"
        if self._ref_counts[block_id]:
            return
        if self._prefixes[block_id] is None:
            self._empty.append(block_id)
        else:
            self._cached[block_id] = None

    def _check_holders(self, block_tables: list[list[int]]) -> None:
        holders: Counter[int] = Counter()
        for table in block_tables:
            _require(len(set(table)) == len(table), f"a block stands twice in one table: {table}")
            holders.update(table)
        for block_id in holders:
            _require(0 < block_id <= self.num_blocks, f"block {block_id} is held, but ids run to {self.num_blocks}")
        for block_id, count in enumerate(self._ref_counts):
            _require(
                count == holders[block_id],
                f"block {block_id} counts {count} holders, but {holders[block_id]} tables hold it",
            )

    def _check_free_blocks(self) -> None:
        free = [*self._empty, *self._cached]
        _require(len(set(free)) == len(free), "a block is free twice")
        expected = {block_id for block_id in range(1, self.num_blocks + 1) if not self._ref_counts[block_id]}
        _require(set(free) == expected, f"the free blocks differ from those that nobody holds: {expected ^ set(free)}")
        for block_id in self._empty:
            _require(self._prefixes[block_id] is None, f"block {block_id} is empty, but registered")
        for block_id in self._cached:
            _require(self._prefixes[block_id] is not None, f"block {block_id} is cached, but not registered")
        _require(
            self.num_used + self.num_free == self.num_blocks,
            f"{self.num_used} used and {self.num_free} free blocks are not {self.num_blocks}",
        )

    def _check_prefixes(self) -> None:
        registered = {block_id: prefix for block_id, prefix in enumerate(self._prefixes) if prefix is not None}
        _require(
            self._by_hash == {prefix.hash: block_id for block_id, prefix in registered.items()}
            and len(self._by_hash) == len(registered),
            "the hash map names other blocks than those that are registered",
        )
        position = {block_id: place for place, block_id in enumerate(self._cached)}
        for block_id, prefix in registered.items():
            self._check_chain(block_id, prefix, position)

    def _check_chain(self, block_id: int, prefix: _Prefix, position: dict[int, int]) -> None:
        """A registered block hashes to its key and hangs on a parent that will be evicted after it."""
        parent_hash = ROOT_HASH
        if prefix.parent_id != PADDING_BLOCK:
            parent = self._prefixes[prefix.parent_id]
            if parent is None:
                raise IntegrityError(f"block {block_id} hangs on block {prefix.parent_id}, which is not registered")
            parent_hash = parent.hash
            # A parent that is held is not among the cached ones, and comes later than all of them.
            last = self.num_blocks
            _require(
                position.get(block_id, last) <= position.get(prefix.parent_id, last),
                f"block {prefix.parent_id} would be evicted before block {block_id}, which hangs on it",
            )
        _require(
            self._hash_block(parent_hash, prefix.token_ids) == prefix.hash,
            f"block {block_id} does not hold what its hash says",
        )


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise IntegrityError(sentence)
