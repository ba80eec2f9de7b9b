"""The block pool against a brute-force twin that knows the whole prefix of every block and no hash chain."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from engine.cache.block_pool import BlockPool, HashBlock, IntegrityError, hash_block


def constant_hash(_parent_hash: int, _token_ids: Sequence[int]) -> int:
    return 7


def weak_hash(parent_hash: int, token_ids: Sequence[int]) -> int:
    return (parent_hash + sum(token_ids)) % 3


def low_byte_hash(parent_hash: int, token_ids: Sequence[int]) -> int:
    return parent_hash * 31 + sum(token & 0xFF for token in token_ids)


HASHES: tuple[HashBlock, ...] = (hash_block, constant_hash, weak_hash)


def admit(pool: BlockPool, token_ids: Sequence[int]) -> list[int]:
    """A block table for these tokens, sharing what can be found."""
    table = pool.find_prefix(token_ids, max_blocks=len(token_ids))
    pool.share(table)
    table += pool.allocate(pool.blocks_for(len(token_ids)) - len(table))
    return table


def register(pool: BlockPool, table: list[int], token_ids: Sequence[int]) -> int:
    return pool.register(table, token_ids, start=0, stop=len(token_ids) // pool.block_size)


def compute(pool: BlockPool, token_ids: Sequence[int]) -> list[int]:
    table = admit(pool, token_ids)
    register(pool, table, token_ids)
    return table


class TestCounts:
    def test_a_new_pool_is_empty(self) -> None:
        pool = BlockPool(5, 4)
        assert (pool.num_blocks, pool.num_free, pool.num_used, pool.num_cached) == (5, 5, 0, 0)
        assert pool.capacity_tokens == 20

    def test_the_padding_block_is_never_handed_out(self) -> None:
        assert sorted(BlockPool(5, 4).allocate(5)) == [1, 2, 3, 4, 5]

    def test_a_shared_block_counts_once(self) -> None:
        pool = BlockPool(5, 4)
        first, second = compute(pool, range(8)), compute(pool, range(8))
        assert first == second
        assert pool.num_used == 2
        pool.release(first)
        assert pool.num_used == 2
        pool.release(second)
        assert (pool.num_used, pool.num_free, pool.num_cached) == (0, 5, 2)

    def test_more_than_is_free_is_a_defect_of_the_caller(self) -> None:
        pool = BlockPool(2, 4)
        with pytest.raises(AssertionError, match="3 blocks were asked for, 2 are free"):
            pool.allocate(3)

    def test_a_block_given_back_twice_is_noticed(self) -> None:
        pool = BlockPool(2, 4)
        table = pool.allocate(1)
        pool.release(list(table))
        with pytest.raises(AssertionError, match="given back twice"):
            pool.release(table)


class TestPrefixes:
    def test_a_freed_prefix_is_found_again(self) -> None:
        pool = BlockPool(5, 4)
        table = compute(pool, range(10))
        full = table[:2]
        pool.release(table)
        assert table == []
        assert pool.find_prefix(list(range(12)), max_blocks=9) == full

    def test_at_most_max_blocks_are_found(self) -> None:
        pool = BlockPool(5, 4)
        table = compute(pool, range(12))
        assert pool.find_prefix(range(12), max_blocks=2) == table[:2]

    def test_blocks_that_are_not_registered_are_not_found(self) -> None:
        pool = BlockPool(5, 4)
        admit(pool, range(8))
        assert pool.find_prefix(range(8), max_blocks=9) == []

    def test_without_caching_nothing_is_kept(self) -> None:
        pool = BlockPool(5, 4, prefix_caching=False)
        table = admit(pool, range(8))
        assert register(pool, table, range(8)) == 0
        pool.release(table)
        assert pool.num_cached == 0
        assert pool.find_prefix(range(8), max_blocks=9) == []

    def test_the_same_tokens_after_another_beginning_are_not_the_same(self) -> None:
        pool = BlockPool(8, 2)
        compute(pool, [1, 1, 5, 5])
        other = compute(pool, [2, 2])
        assert pool.find_prefix([2, 2, 5, 5], max_blocks=9) == other

    def test_equal_prompts_of_one_step_share_once_they_are_computed(self) -> None:
        pool = BlockPool(8, 2)
        first, second = admit(pool, [1, 2, 3, 4, 5]), admit(pool, [1, 2, 3, 4, 5])
        assert not set(first) & set(second)
        register(pool, first, [1, 2, 3, 4, 5])
        assert register(pool, second, [1, 2, 3, 4, 5]) == 2
        assert first[:2] == second[:2]
        assert first[2] != second[2]
        assert pool.num_used == 4
        pool.check_integrity([first, second])

    def test_a_copy_does_not_outlive_the_block_its_children_hang_on(self) -> None:
        pool = BlockPool(6, 2)
        first, second = admit(pool, [1, 1]), admit(pool, [1, 1, 2, 2])
        register(pool, first, [1, 1])
        register(pool, second, [1, 1, 2, 2])
        pool.release(first)
        pool.allocate(pool.num_free)  # evicts whatever can be evicted
        assert pool.find_prefix([1, 1, 2, 2], max_blocks=9) == second


class TestEviction:
    def test_empty_blocks_go_before_cached_ones(self) -> None:
        pool = BlockPool(5, 2)
        pool.release(compute(pool, [1, 1, 2, 2]))
        pool.allocate(3)
        assert pool.num_cached == 2

    def test_the_oldest_prefix_goes_first(self) -> None:
        pool = BlockPool(4, 2)
        old, new = compute(pool, [1, 1, 2, 2]), compute(pool, [3, 3, 4, 4])
        pool.release(old)
        pool.release(new)
        pool.allocate(2)
        assert pool.find_prefix([1, 1], max_blocks=1) == []
        assert len(pool.find_prefix([3, 3, 4, 4], max_blocks=2)) == 2

    def test_the_tail_of_a_prefix_goes_before_its_head(self) -> None:
        pool = BlockPool(3, 2)
        table = compute(pool, [1, 1, 2, 2, 3, 3])
        head = table[:2]
        pool.release(table)
        pool.allocate(1)
        assert pool.find_prefix([1, 1, 2, 2, 3, 3], max_blocks=3) == head

    def test_a_hit_makes_a_prefix_young_again(self) -> None:
        pool = BlockPool(4, 2)
        for tokens in ([1, 1], [2, 2]):
            pool.release(compute(pool, tokens))
        pool.release(compute(pool, [1, 1]))
        pool.allocate(3)
        assert pool.find_prefix([1, 1], max_blocks=1)
        assert not pool.find_prefix([2, 2], max_blocks=1)


class TestForgetting:
    def test_a_wrong_prefix_is_not_found_again_nor_what_hangs_on_it(self) -> None:
        pool = BlockPool(9, 4)
        table = compute(pool, range(8))
        pool.release(compute(pool, range(20)))
        assert pool.num_cached == 3
        assert sorted(pool.forget(table)) == [1, 2, 3, 4, 5]
        pool.release(table)
        pool.check_integrity([])
        assert pool.num_cached == 0
        assert pool.find_prefix(range(20), max_blocks=5) == []

    def test_what_others_hold_stays(self) -> None:
        pool = BlockPool(9, 4)
        first, second = compute(pool, range(12)), compute(pool, [*range(8), 50, 51, 52, 53])
        assert pool.forget(first) == first[2:]
        pool.release(first)
        pool.check_integrity([second])
        assert pool.find_prefix(range(12), max_blocks=3) == second[:2]

    def test_without_caching_all_blocks_are_named(self) -> None:
        pool = BlockPool(4, 4, prefix_caching=False)
        table = pool.allocate(3)
        assert sorted(pool.forget(table)) == sorted(table)
        pool.release(table)
        pool.check_integrity([])


class TestReports:
    """Defects that were reported of other engines, tried on this pool."""

    def test_17_no_entry_of_the_hash_map_points_at_a_reused_block(self) -> None:
        """Report 17."""
        pool = BlockPool(3, 2)
        prompt_a, prompt_b = [1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6]
        for prompt in (prompt_a, prompt_b, prompt_a):
            table = compute(pool, prompt)
            assert pool.find_prefix(prompt, max_blocks=3) == table
            pool.check_integrity([table])
            pool.release(table)
        assert pool.find_prefix(prompt_b, max_blocks=3) == []

    @pytest.mark.parametrize("hash_function", [low_byte_hash, constant_hash])
    def test_20_equal_hashes_share_nothing_that_differs(self, hash_function: HashBlock) -> None:
        """Report 20."""
        pool = BlockPool(8, 2, hash_block=hash_function)
        first = compute(pool, [65, 65, 9, 9])
        second = admit(pool, [321, 321, 9, 9])
        assert not set(first) & set(second)
        assert register(pool, second, [321, 321, 9, 9]) == 0
        pool.check_integrity([first, second])

    def test_23_counts_add_up_after_ten_thousand_operations(self) -> None:
        """Report 23."""
        rng = random.Random(23)
        pool = BlockPool(12, 2)
        tables: list[list[int]] = []
        for _ in range(10_000):
            tokens = [rng.randrange(2) for _ in range(rng.randint(1, 8))]
            if pool.num_free >= pool.blocks_for(len(tokens)) and rng.random() < 0.6:
                tables.append(compute(pool, tokens))
            elif tables:
                pool.release(tables.pop(rng.randrange(len(tables))))
            pool.check_integrity(tables)
            assert pool.num_used + pool.num_free == 12
            assert 0 <= pool.num_cached <= pool.num_free


def _free_twice(pool: BlockPool, _table: list[int]) -> None:
    pool._empty.append(pool._empty[0])


def _lose_a_free_block(pool: BlockPool, _table: list[int]) -> None:
    pool._empty.pop()


def _miscount_holders(pool: BlockPool, table: list[int]) -> None:
    pool._ref_counts[table[0]] += 1


def _hold_a_block_twice(_pool: BlockPool, table: list[int]) -> None:
    table.append(table[0])


def _hold_a_foreign_block(_pool: BlockPool, table: list[int]) -> None:
    table.append(99)


def _drop_an_entry_of_the_map(pool: BlockPool, _table: list[int]) -> None:
    pool._by_hash.popitem()


def _change_what_a_block_holds(pool: BlockPool, table: list[int]) -> None:
    prefix = pool._prefixes[table[0]]
    assert prefix is not None
    pool._prefixes[table[0]] = type(prefix)(prefix.hash, prefix.parent_id, (8, 8))


def _cache_a_block_without_content(pool: BlockPool, _table: list[int]) -> None:
    pool._cached[pool._empty.pop()] = None


def _forget_a_parent(pool: BlockPool, table: list[int]) -> None:
    pool._forget(table[0])


def _age_a_parent(pool: BlockPool, table: list[int]) -> None:
    parent = table[0]
    pool.release(table)
    pool._cached.move_to_end(parent, last=False)


class TestIntegrity:
    @pytest.mark.parametrize(
        ("damage", "sentence"),
        [
            (_free_twice, "free twice"),
            (_lose_a_free_block, "nobody holds"),
            (_miscount_holders, "counts 2 holders, but 1 tables hold it"),
            (_hold_a_block_twice, "twice in one table"),
            (_hold_a_foreign_block, "ids run to 6"),
            (_drop_an_entry_of_the_map, "hash map"),
            (_change_what_a_block_holds, "does not hold what its hash says"),
            (_cache_a_block_without_content, "cached, but not registered"),
            (_forget_a_parent, "hangs on block"),
            (_age_a_parent, "would be evicted before"),
        ],
    )
    def test_damage_is_found(self, damage: Callable[[BlockPool, list[int]], None], sentence: str) -> None:
        pool = BlockPool(6, 2)
        table = compute(pool, [1, 2, 3, 4])
        pool.check_integrity([table])
        damage(pool, table)
        with pytest.raises(IntegrityError, match=sentence):
            pool.check_integrity([table])


class Holder:
    """A sequence of the twin: its tokens, the pool's table, and how much is registered."""

    def __init__(self, token_ids: list[int], table: list[int], num_registered: int) -> None:
        self.token_ids = token_ids
        self.table = table
        self.num_registered = num_registered


class PoolMachine(RuleBasedStateMachine):
    """Random holders on a small pool; the twin keeps whole prefixes where the pool keeps hashes."""

    BLOCK_SIZE = 2
    holders = Bundle("holders")
    tokens = st.lists(st.integers(0, 1), min_size=1, max_size=9)

    @initialize(num_blocks=st.integers(1, 9), hash_function=st.sampled_from(HASHES))
    def build(self, num_blocks: int, hash_function: HashBlock) -> None:
        self.pool = BlockPool(num_blocks, self.BLOCK_SIZE, hash_block=hash_function)
        self.hash_function = hash_function
        self.alive: list[Holder] = []
        self.prefix_of: dict[int, tuple[int, ...]] = {}  # registered blocks
        self.content: dict[int, tuple[int, ...]] = {}  # what was written last, with all before it
        self.cached: list[int] = []  # oldest first

    def key(self, prefix: tuple[int, ...]) -> int:
        value = 0
        for start in range(0, len(prefix), self.BLOCK_SIZE):
            value = self.hash_function(value, prefix[start : start + self.BLOCK_SIZE])
        return value

    def prefix(self, token_ids: Sequence[int], index: int) -> tuple[int, ...]:
        return tuple(token_ids[: (index + 1) * self.BLOCK_SIZE])

    def holder_of(self, prefix: tuple[int, ...]) -> int | None:
        return next((block_id for block_id, held in self.prefix_of.items() if held == prefix), None)

    def longest(self, token_ids: Sequence[int]) -> list[int]:
        found: list[int] = []
        for index in range(len(token_ids) // self.BLOCK_SIZE):
            block_id = self.holder_of(self.prefix(token_ids, index))
            if block_id is None:
                break
            found.append(block_id)
        return found

    def allocate(self, count: int) -> list[int]:
        num_empty = self.pool.num_blocks - len(self.held()) - len(self.cached)
        evicted = self.cached[: max(count - num_empty, 0)]
        self.cached = self.cached[len(evicted) :]
        for block_id in evicted:
            del self.prefix_of[block_id]
        before = self.held() | set(self.cached)
        table = self.pool.allocate(count)
        assert len(set(table)) == count
        assert not set(table) & before
        assert set(evicted) <= set(table)
        return table

    def held(self) -> set[int]:
        return {block_id for holder in self.alive for block_id in holder.table}

    def free_if_unheld(self, block_id: int) -> None:
        if block_id not in self.held() and block_id in self.prefix_of:
            self.cached.append(block_id)

    @rule(target=holders, token_ids=tokens)
    def admit(self, token_ids: list[int]) -> Holder:
        found = self.pool.find_prefix(token_ids, max_blocks=99)
        assert found == self.longest(token_ids)
        needed = self.pool.blocks_for(len(token_ids)) - len(found) + self.pool.num_free_among(found)
        holder = Holder(token_ids, [], 0)
        self.alive.append(holder)
        if needed <= self.pool.num_free:
            self.pool.share(found)
            holder.table += found
            holder.num_registered = len(found)
            self.cached = [block_id for block_id in self.cached if block_id not in found]
            holder.table += self.allocate(self.pool.blocks_for(len(token_ids)) - len(found))
            assert [self.content[block_id] for block_id in found] == [
                self.prefix(token_ids, index) for index in range(len(found))
            ]
        else:
            holder.token_ids = []
        return holder

    @rule(holder=holders, token_ids=tokens)
    def append(self, holder: Holder, token_ids: list[int]) -> None:
        missing = self.pool.blocks_for(len(holder.token_ids) + len(token_ids)) - len(holder.table)
        if missing <= self.pool.num_free:
            holder.table += self.allocate(missing)
            holder.token_ids = holder.token_ids + token_ids

    @rule(holder=holders)
    def compute(self, holder: Holder) -> None:
        """Write what is not registered yet, then register it."""
        num_full = len(holder.token_ids) // self.BLOCK_SIZE
        start = holder.num_registered
        for index in range(start, num_full):
            self.content[holder.table[index]] = self.prefix(holder.token_ids, index)
        own = list(holder.table)
        holder.num_registered = self.pool.register(holder.table, holder.token_ids, start=start, stop=num_full)
        expected = own[:start]
        for index in range(start, num_full):
            prefix = self.prefix(holder.token_ids, index)
            keys = {self.key(held): block_id for block_id, held in self.prefix_of.items()}
            block_id = keys.get(self.key(prefix))
            if block_id is None:
                self.prefix_of[own[index]] = prefix
                expected.append(own[index])
            elif self.prefix_of[block_id] == prefix:
                expected.append(block_id)
                self.cached = [each for each in self.cached if each != block_id]
            else:
                break
        assert holder.num_registered == len(expected)
        assert holder.table == expected + own[len(expected) :]

    @rule(holder=consumes(holders))
    def release(self, holder: Holder) -> None:
        table = list(holder.table)
        self.pool.release(holder.table)
        self.alive.remove(holder)
        for block_id in reversed(table):
            self.free_if_unheld(block_id)

    @rule(holder=consumes(holders))
    def discard(self, holder: Holder) -> None:
        """What it alone held is wrong, and so is whatever was computed from that."""
        self.alive.remove(holder)
        wrong = {block_id for block_id in holder.table if block_id not in self.held()}
        beginnings = [self.prefix_of[block_id] for block_id in wrong if block_id in self.prefix_of]
        for block_id, prefix in self.prefix_of.items():
            if any(prefix[: len(beginning)] == beginning for beginning in beginnings):
                wrong.add(block_id)
        assert sorted(self.pool.forget(holder.table)) == sorted(wrong)
        self.pool.release(holder.table)
        self.prefix_of = {each: prefix for each, prefix in self.prefix_of.items() if each not in wrong}
        self.cached = [each for each in self.cached if each not in wrong]

    @precondition(lambda self: self.alive)
    @rule()
    def nothing_but_strangers(self) -> None:
        assert self.pool.find_prefix([9, 9, 9, 9], max_blocks=9) == []

    @invariant()
    def books_add_up(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity([holder.table for holder in self.alive])
        assert self.pool.num_used == len(self.held())
        assert self.pool.cached_block_ids == tuple(self.cached)
        assert self.pool.num_free == self.pool.num_blocks - len(self.held())
        for block_id, prefix in self.prefix_of.items():
            assert self.content[block_id] == prefix


PoolMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPoolMachine = PoolMachine.TestCase
