"""The memory plan: 23 cases with known outcomes, and what must hold for every snapshot there can be."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.memory.advice import FreeMemory, SetBlockSize, SetKvBytes, SetMargin, SetOwnLimit
from engine.memory.plan import LimitedBy, MemoryPlan, MemorySnapshot, PlanRefusedError, plan
from engine.memory.report import format_plan, format_refusal

MIB = 1 << 20
CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "memory_plan.json").read_text(encoding="utf-8"))

# The everyday card of these tests: Qwen3-0.6B in bf16, 28 MiB for 256 tokens.
CARD = MemorySnapshot(
    total_bytes=12_288 * MIB,
    free_bytes=6_000 * MIB,
    allocated_bytes=1_144 * MIB,
    peak_bytes=1_400 * MIB,
    graphs_bytes=0,
    margin_bytes=384 * MIB,
    block_bytes=28 * MIB,
    block_size_tokens=256,
    max_model_len_tokens=4_096,
    max_num_seqs=64,
)


def refusal_of(snapshot: MemorySnapshot) -> PlanRefusedError:
    with pytest.raises(PlanRefusedError) as caught:
        plan(snapshot)
    return caught.value


def blocks_or_none(snapshot: MemorySnapshot) -> int:
    """Usable blocks; a refusal is none."""
    try:
        return plan(snapshot).usable_blocks
    except PlanRefusedError:
        return 0


def fits(snapshot: MemorySnapshot, num_blocks: int) -> bool:
    """Whether so many blocks keep every promise: written from the promises, not from the formula."""
    cache = num_blocks * snapshot.block_bytes
    step = max(snapshot.peak_bytes - snapshot.allocated_bytes, 0) + snapshot.graphs_bytes
    if cache + step + snapshot.margin_bytes > snapshot.free_bytes:
        return False
    if snapshot.own_limit_fraction is not None:
        assert snapshot.own_bytes is not None
        limit = int(snapshot.own_limit_fraction * snapshot.total_bytes)
        if cache + step + snapshot.own_bytes > limit:
            return False
    return snapshot.kv_bytes_requested is None or cache <= snapshot.kv_bytes_requested


def most_blocks(snapshot: MemorySnapshot) -> int:
    """The largest number that fits, by doubling and halving; padding included, useful or not."""
    low, high = 0, 1
    if not fits(snapshot, 0):
        return 0
    while fits(snapshot, high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(snapshot, middle) else (low, middle)
    return low


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


@st.composite
def snapshots(draw: st.DrawFn, *, own_limit: bool = True, kv_size: bool = True) -> MemorySnapshot:
    """Devices on both sides of every border: each room lies around what the shortest context needs."""
    unit = draw(st.sampled_from((1, 4_096, MIB)))
    size = draw(st.sampled_from((16, 32, 64, 128, 256)))
    block = draw(st.integers(1, 40)) * size * max(unit // 4_096, 1)
    max_model_len = draw(st.integers(1, 9_000))
    floor = ceil_div(min(512, max_model_len), size) + 1

    def room() -> int:
        blocks = draw(st.integers(-floor, 6 * floor)) if draw(st.booleans()) else draw(st.integers(0, 2))
        return (floor + blocks) * block + draw(st.sampled_from((-1, 0, 1, block // 2)))

    allocated, graphs, margin = (draw(st.integers(0, 1_000)) * unit for _ in range(3))
    margin += draw(st.sampled_from((0, 128 * MIB)))
    step = draw(st.integers(-100, 1_000)) * unit
    free = max(room() + max(step, 0) + graphs + margin, 0)
    total = free + allocated + draw(st.integers(0, 5_000)) * unit
    fraction = draw(st.integers(1, 1_000)) / 1_000 if own_limit and draw(st.booleans()) else None
    own = None if fraction is None else max(int(fraction * total) - max(step, 0) - graphs - room(), 0)
    return MemorySnapshot(
        total_bytes=total,
        free_bytes=free,
        allocated_bytes=allocated,
        peak_bytes=max(allocated + step, 0),
        graphs_bytes=graphs,
        margin_bytes=margin,
        block_bytes=block,
        block_size_tokens=size,
        max_model_len_tokens=max_model_len,
        max_num_seqs=draw(st.integers(1, 64)),
        own_limit_fraction=fraction,
        own_bytes=own,
        kv_bytes_requested=max(room(), 0) if kv_size and draw(st.booleans()) else None,
    )


class TestCases:
    def test_there_are_23(self) -> None:
        assert len(CASES) == 23

    @pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
    def test_case(self, case: dict[str, Any]) -> None:
        snapshot, expect = MemorySnapshot.from_json(case["snapshot"]), case["expect"]
        if expect["error"]:
            got = refusal_of(snapshot).to_json()
            assert got["limited_by"] == expect["limited_by"]
            assert ceil_div(got["shortfall_bytes"], MIB) == expect["shortfall_mib"]  # type: ignore[arg-type]
            assert set(got) == {"error", "limited_by", "shortfall_bytes", "advice", "old_formula_blocks"}
        else:
            got = plan(snapshot).to_json()
            assert set(got) == set(expect) - {"error"} | {"old_formula_blocks"}
            assert got.items() >= {key: value for key, value in expect.items() if key != "error"}.items()
        assert got["old_formula_blocks"] == case["old_formula_blocks"]


class TestAgainstPromises:
    @given(snapshots())
    def test_as_many_blocks_as_fit_and_are_useful(self, snapshot: MemorySnapshot) -> None:
        useful = snapshot.max_num_seqs * ceil_div(snapshot.max_model_len_tokens, snapshot.block_size_tokens)
        floor = ceil_div(min(512, snapshot.max_model_len_tokens), snapshot.block_size_tokens)
        try:
            got = plan(snapshot)
        except PlanRefusedError as refusal:
            asked = snapshot.kv_bytes_requested is not None and refusal.limited_by is not LimitedBy.KV_SIZE
            without_wish = replace(snapshot, kv_bytes_requested=None) if asked else snapshot
            too_large_a_wish = asked and snapshot.kv_bytes_requested > _measured_room(snapshot)
            assert most_blocks(without_wish) < floor + 1 or too_large_a_wish
            return
        assert got.allocated_blocks == min(most_blocks(snapshot), useful + 1)
        assert got.usable_blocks >= floor
        assert got.max_model_len_tokens == min(snapshot.max_model_len_tokens, got.tokens)

    @given(snapshots())
    def test_limited_by_names_the_term_that_one_block_more_would_break(self, snapshot: MemorySnapshot) -> None:
        try:
            got = plan(snapshot)
        except PlanRefusedError:
            return
        one_more = got.kv_bytes + snapshot.block_bytes
        step = max(snapshot.peak_bytes - snapshot.allocated_bytes, 0) + snapshot.graphs_bytes
        match got.limited_by:
            case LimitedBy.DEVICE:
                assert one_more + step + snapshot.margin_bytes > snapshot.free_bytes
            case LimitedBy.OWN_LIMIT:
                assert snapshot.own_limit_fraction is not None
                limit = int(snapshot.own_limit_fraction * snapshot.total_bytes)
                assert one_more + step + (snapshot.own_bytes or 0) > limit
            case LimitedBy.KV_SIZE:
                assert snapshot.kv_bytes_requested is not None
                assert one_more > snapshot.kv_bytes_requested
            case LimitedBy.MAX_USEFUL:
                assert got.tokens >= snapshot.max_num_seqs * snapshot.max_model_len_tokens

    def test_room_for_exactly_what_is_useful_is_not_cut(self) -> None:
        assert plan(CARD).allocated_blocks == 191
        exact = replace(CARD, max_num_seqs=19, max_model_len_tokens=10 * 256)
        assert (plan(exact).usable_blocks, plan(exact).limited_by) == (190, LimitedBy.DEVICE)

    @given(snapshots(), st.integers(0, 2_000 * MIB))
    def test_more_room_never_gives_fewer_blocks(self, snapshot: MemorySnapshot, more: int) -> None:
        blocks = blocks_or_none(snapshot)
        assert blocks_or_none(replace(snapshot, free_bytes=snapshot.free_bytes + more)) >= blocks
        for tighter in (
            replace(snapshot, margin_bytes=snapshot.margin_bytes + more),
            replace(snapshot, graphs_bytes=snapshot.graphs_bytes + more),
            replace(snapshot, peak_bytes=snapshot.peak_bytes + more),
        ):
            assert blocks_or_none(tighter) <= blocks

    @given(snapshots(kv_size=False))
    def test_the_shortfall_is_exact(self, snapshot: MemorySnapshot) -> None:
        try:
            plan(snapshot)
        except PlanRefusedError as error:
            refusal = error
        else:
            return
        lacks = refusal.shortfall_bytes
        assert lacks > 0
        if refusal.limited_by is LimitedBy.DEVICE:
            snapshot = replace(snapshot, own_limit_fraction=None, own_bytes=None)
            enough = replace(snapshot, free_bytes=snapshot.free_bytes + lacks)
            too_little = replace(snapshot, free_bytes=snapshot.free_bytes + lacks - 1)
        else:
            assume(snapshot.own_bytes is not None and snapshot.own_bytes >= lacks)
            snapshot = replace(snapshot, free_bytes=snapshot.free_bytes + (1 << 50))
            enough = replace(snapshot, own_bytes=snapshot.own_bytes - lacks)  # type: ignore[operator]
            too_little = replace(snapshot, own_bytes=snapshot.own_bytes - lacks + 1)  # type: ignore[operator]
        assert plan(enough).usable_blocks >= 1
        assert refusal_of(too_little).shortfall_bytes == 1

    @given(snapshots(own_limit=False), st.integers(0, 9_000 * MIB), st.integers(0, 9_000 * MIB))
    def test_who_holds_the_rest_does_not_matter(self, snapshot: MemorySnapshot, others: int, ours: int) -> None:
        elsewhere = replace(
            snapshot,
            total_bytes=snapshot.total_bytes + others,
            allocated_bytes=snapshot.allocated_bytes + ours,
            peak_bytes=snapshot.peak_bytes + ours,
        )
        assume(snapshot.peak_bytes >= snapshot.allocated_bytes)
        assert blocks_or_none(elsewhere) == blocks_or_none(snapshot)

    @given(snapshots())
    def test_planning_again_with_the_cache_counted_back_changes_nothing(self, snapshot: MemorySnapshot) -> None:
        try:
            first = plan(snapshot)
        except PlanRefusedError:
            return
        cache = first.kv_bytes
        running = replace(
            snapshot,
            free_bytes=snapshot.free_bytes - cache,
            allocated_bytes=snapshot.allocated_bytes + cache,
            peak_bytes=snapshot.peak_bytes + cache,
            own_bytes=None if snapshot.own_bytes is None else snapshot.own_bytes + cache,
        )
        counted_back = replace(
            running,
            free_bytes=running.free_bytes + cache,
            own_bytes=None if running.own_bytes is None else running.own_bytes - cache,
        )
        again = plan(counted_back)
        assert (again.usable_blocks, again.limited_by) == (first.usable_blocks, first.limited_by)


def _measured_room(snapshot: MemorySnapshot) -> int:
    """Bytes that the device and the limit leave, in whole bytes."""
    low, high = 0, 1 << 60
    single = replace(snapshot, block_bytes=1, kv_bytes_requested=None)
    if not fits(single, 0):
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(single, middle) else (low, middle)
    return low


class TestAdvice:
    @given(snapshots())
    def test_whatever_is_advised_works_on_the_same_snapshot(self, snapshot: MemorySnapshot) -> None:
        try:
            plan(snapshot)
        except PlanRefusedError as refusal:
            for advice in refusal.advice:
                self.check(snapshot, advice.to_json(), plan(advice.apply(snapshot)))

    def check(self, snapshot: MemorySnapshot, advice: dict[str, Any], got: MemoryPlan) -> None:
        assert got.max_model_len_tokens >= min(512, snapshot.max_model_len_tokens)
        match advice:
            case {"action": "free", "bytes": int(free_bytes), **rest}:
                assert 0 < free_bytes <= snapshot.total_bytes - snapshot.free_bytes
            case {"action": "own_limit", "fraction": float(fraction), **rest}:
                assert (snapshot.own_limit_fraction or 0) < fraction <= 1
            case {"action": "kv_bytes", "bytes": int(kv_bytes), **rest}:
                assert kv_bytes % snapshot.block_bytes == 0
            case {"action": "margin", "bytes": int(margin_bytes), **rest}:
                assert 128 * MIB <= margin_bytes < snapshot.margin_bytes
            case {"action": "block_size", "tokens": int(tokens), **rest}:
                assert tokens in (16, 32, 64, 128)
                assert tokens < snapshot.block_size_tokens
                assert got.snapshot.block_bytes * snapshot.block_size_tokens == snapshot.block_bytes * tokens
            case _:
                pytest.fail(f"unknown advice {advice}")
        assert not rest

    def test_memory_that_others_hold(self) -> None:
        refusal = refusal_of(replace(CARD, free_bytes=700 * MIB))
        assert refusal.limited_by is LimitedBy.DEVICE
        assert refusal.shortfall_bytes == 24 * MIB
        assert refusal.advice == (FreeMemory(24 * MIB), SetMargin(360 * MIB), SetBlockSize(32))

    def test_nobody_can_free_what_nobody_holds(self) -> None:
        alone = replace(CARD, total_bytes=2_000 * MIB, free_bytes=700 * MIB, margin_bytes=384 * MIB)
        assert plan(replace(alone, free_bytes=724 * MIB)).usable_blocks == 2
        full = replace(alone, allocated_bytes=1_290 * MIB, peak_bytes=1_546 * MIB)
        assert not any(isinstance(advice, FreeMemory) for advice in refusal_of(full).advice)

    def test_the_margin_never_goes_below_its_floor(self) -> None:
        refusal = refusal_of(replace(CARD, free_bytes=440 * MIB, margin_bytes=128 * MIB))
        assert refusal.advice == (FreeMemory(28 * MIB),)

    def test_the_users_own_limit(self) -> None:
        refusal = refusal_of(replace(CARD, own_limit_fraction=0.3, own_bytes=3_600 * MIB))
        assert refusal.limited_by is LimitedBy.OWN_LIMIT
        assert refusal.advice == (SetOwnLimit(0.321),)
        assert "your limit of 30 %" in str(refusal)
        assert "other programs" not in str(refusal)

    def test_a_limit_that_floating_point_puts_a_byte_short_is_not_advised(self) -> None:
        total, needed = 10_000_000_000, 1_410_000_000
        assert int(0.141 * total) == needed - 1
        own_bytes = needed - CARD.activation_bytes - 84 * MIB
        refusal = refusal_of(replace(CARD, total_bytes=total, own_limit_fraction=0.1, own_bytes=own_bytes))
        assert refusal.advice == (SetOwnLimit(0.142),)

    def test_a_size_above_the_room_is_refused_not_shrunk(self) -> None:
        refusal = refusal_of(replace(CARD, kv_bytes_requested=5_361 * MIB))
        assert (refusal.limited_by, refusal.shortfall_bytes) == (LimitedBy.DEVICE, MIB)
        assert SetKvBytes(191 * 28 * MIB) in refusal.advice
        assert "5,361 MiB was asked for" in str(refusal)

    def test_a_size_above_the_users_limit_is_refused_too(self) -> None:
        refusal = refusal_of(
            replace(CARD, own_limit_fraction=0.5, own_bytes=3_600 * MIB, kv_bytes_requested=4_000 * MIB)
        )
        assert (refusal.limited_by, refusal.shortfall_bytes) == (LimitedBy.OWN_LIMIT, (4_000 - 2_288) * MIB)

    def test_a_size_for_less_than_the_shortest_context(self) -> None:
        refusal = refusal_of(replace(CARD, kv_bytes_requested=83 * MIB))
        assert (refusal.limited_by, refusal.shortfall_bytes) == (LimitedBy.KV_SIZE, MIB)
        assert refusal.advice == (SetKvBytes(84 * MIB), SetBlockSize(128))

    def test_where_nothing_alone_helps_the_sentence_says_so(self) -> None:
        refusal = refusal_of(replace(CARD, free_bytes=0, own_limit_fraction=0.1, own_bytes=3_600 * MIB))
        assert refusal.advice == ()
        assert "smaller model" in str(refusal)

    def test_a_smaller_block_where_the_padding_block_is_too_much(self) -> None:
        # 60 MiB of room: three blocks of 28 MiB do not fit, seventeen of 3.5 MiB do.
        refusal = refusal_of(replace(CARD, free_bytes=700 * MIB))
        smaller = plan(SetBlockSize(32).apply(refusal.snapshot))
        assert (smaller.allocated_blocks, smaller.tokens) == (17, 512)

    @given(snapshots())
    def test_a_refusal_is_one_sentence_with_its_numbers(self, snapshot: MemorySnapshot) -> None:
        try:
            plan(snapshot)
        except PlanRefusedError as refusal:
            sentence = str(refusal)
            assert sentence.endswith(".")
            assert ". " not in sentence
            assert "\n" not in sentence
            mib = ceil_div(refusal.shortfall_bytes, MIB)
            exact = f"{refusal.shortfall_bytes:,} bytes are missing"
            assert exact in sentence or f"{mib:,} MiB are missing" in sentence or "GiB are missing" in sentence


class TestReports:
    """Defects that were reported of other engines, tried on this plan."""

    def test_1_others_on_the_card_never_make_it_negative(self) -> None:
        for free_mib in range(0, 1_000, 50):
            assert blocks_or_none(replace(CARD, free_bytes=free_mib * MIB)) >= 0

    def test_2_a_second_engine_on_the_card_starts_too(self) -> None:
        first = plan(replace(CARD, max_num_seqs=4))
        taken = first.kv_bytes + CARD.allocated_bytes
        second = plan(replace(CARD, free_bytes=CARD.free_bytes - taken))
        assert 0 < second.usable_blocks < plan(CARD).usable_blocks

    @given(snapshots(own_limit=False, kv_size=False), st.integers(1, 8))
    def test_2_a_second_engine_gets_what_the_first_one_leaves(self, card: MemorySnapshot, slots: int) -> None:
        """Whoever takes its share of the whole instead of what is free gives the second one nothing."""
        first = replace(card, max_num_seqs=slots)
        left = replace(card, free_bytes=max(card.free_bytes - blocks_or_none(first) * card.block_bytes, 0))
        shortest = ceil_div(min(512, card.max_model_len_tokens), card.block_size_tokens) + 1
        assert (blocks_or_none(left) > 0) == (most_blocks(left) >= shortest)

    def test_3_memory_that_came_back_while_measuring_is_welcome(self) -> None:
        assert plan(replace(CARD, free_bytes=CARD.free_bytes + 4_096 * MIB)).usable_blocks > plan(CARD).usable_blocks

    def test_4_a_card_three_quarters_free_is_enough(self) -> None:
        card = replace(CARD, free_bytes=9_000 * MIB, allocated_bytes=2_288 * MIB, peak_bytes=2_544 * MIB)
        assert plan(card).tokens > card.max_model_len_tokens
        rows = format_plan(plan(card)).splitlines()
        assert "- held, by every process       3,288.0" in rows, "and it says how much is not free"

    @given(snapshots(kv_size=False), st.integers(1, 2**40))
    def test_6_a_step_that_takes_more_gets_fewer_blocks(self, snapshot: MemorySnapshot, more_bytes: int) -> None:
        """Logits of all slots, and graphs: what is not counted before the cache is allocated is missing after it."""
        greedy = replace(snapshot, peak_bytes=max(snapshot.peak_bytes, snapshot.allocated_bytes) + more_bytes)
        assert blocks_or_none(greedy) <= blocks_or_none(snapshot)
        captured = replace(snapshot, graphs_bytes=snapshot.graphs_bytes + more_bytes)
        assert blocks_or_none(captured) <= blocks_or_none(snapshot)

    @given(snapshots())
    def test_11_a_refusal_carries_its_numbers(self, snapshot: MemorySnapshot) -> None:
        assume(blocks_or_none(snapshot) == 0)
        refusal = refusal_of(snapshot)
        assert refusal.shortfall_bytes > 0
        assert refusal.snapshot == snapshot
        said = refusal.to_json()
        assert said["limited_by"] in ("device", "own_limit", "kv_size")
        assert said["shortfall_bytes"] == refusal.shortfall_bytes
        waterfall = format_refusal(refusal)
        assert "- held, by every process" in waterfall
        assert waterfall.endswith(str(refusal))

    def test_a_peak_below_what_is_allocated_counts_as_no_activations(self) -> None:
        plain = replace(CARD, allocated_bytes=1_400 * MIB, peak_bytes=1_144 * MIB)
        assert plan(plain).allocated_blocks == 200


class TestSnapshot:
    def data(self, **changes: object) -> dict[str, Any]:
        return {**CASES[0]["snapshot"], **changes}

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"free_bytes": -1}, "free_bytes is -1; it must be a whole number of 0 or more"),
            ({"free_bytes": 1.5}, "free_bytes is 1.5"),
            ({"free_bytes": "7"}, "free_bytes is '7'"),
            ({"free_bytes": None}, "free_bytes is None"),
            ({"free_bytes": True}, "free_bytes is True"),
            ({"block_bytes": 0}, "block_bytes is 0; it must be a whole number of 1 or more"),
            ({"block_size_tokens": 0}, "block_size_tokens is 0"),
            ({"max_num_seqs": -3}, "max_num_seqs is -3"),
            ({"own_limit_fraction": 1.5, "own_bytes": 1}, "own_limit_fraction is 1.5"),
            ({"own_limit_fraction": float("nan"), "own_bytes": 1}, "own_limit_fraction is nan"),
            ({"own_limit_fraction": 0, "own_bytes": 1}, "own_limit_fraction is 0"),
            ({"own_limit_fraction": 0.5}, "but not own_bytes"),
            ({"kv_bytes_requested": -5}, "kv_bytes_requested is -5"),
            ({"own_limit_fracton": 0.5}, "no snapshot has: own_limit_fracton"),
        ],
    )
    def test_what_cannot_be_true_is_named(self, changes: dict[str, object], sentence: str) -> None:
        with pytest.raises(UsageError, match=sentence):
            MemorySnapshot.from_json(self.data(**changes))

    def test_what_is_missing_is_named(self) -> None:
        data = self.data()
        del data["free_bytes"], data["block_bytes"]
        with pytest.raises(UsageError, match="lacks free_bytes, block_bytes"):
            MemorySnapshot.from_json(data)

    def test_what_only_some_users_set_may_be_left_out(self) -> None:
        data = {name: value for name, value in self.data().items() if value is not None}
        assert MemorySnapshot.from_json(data) == MemorySnapshot.from_json(self.data())
