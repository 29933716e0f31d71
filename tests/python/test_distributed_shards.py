# SPDX-License-Identifier: Apache-2.0
"""Which keys, rows and candidates belong where: no communication, against counting and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dosa
import dosa.distributed as dd
from dosa._shards import (
    balanced_slices,
    count_reaching,
    even_slices,
    proven_bounds,
    quantile_ranks,
    records,
)
from ranks import KINDS, cut, sharding


def place(kind: str, keys: int, size: int) -> list[Any]:
    shards = cut(kind, keys, size)
    headers = [sharding(kind, own).header(len(own)) for own in shards]
    return [sharding(kind, own).place(rank, headers) for rank, own in enumerate(shards)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", [0, 1, 15, 16, 17, 100])
def test_placements_map_ids_and_windows(kind: str, keys: int) -> None:
    for size in (1, 2, 3, 8):
        for own, placement in zip(cut(kind, keys, size), place(kind, keys, size), strict=True):
            assert placement.num_keys == keys
            local = np.array([*range(len(own)), -1], np.int32)
            assert placement.to_global(local).tolist() == [*own.tolist(), -1]
            edges = np.arange(keys + 1)
            counted = [int((own < edge).sum()) for edge in edges]
            assert placement.count_below(edges).tolist() == counted


@pytest.mark.parametrize("kind", KINDS)
def test_windows_stay_ranges(kind: str) -> None:
    """The local keys of [count_below(s), count_below(e)) are those of [s, e), for all s and e."""
    for own, placement in zip(cut(kind, 40, 3), place(kind, 40, 3), strict=True):
        for start in range(41):
            for end in range(41):
                low, high = placement.count_below(np.array([start, end]))
                inside = own[(own >= start) & (own < end)]
                assert own[low:high].tolist() == inside.tolist()


def test_shardings_that_are_none() -> None:
    with pytest.raises(dosa.ArgumentError, match=r"^k: found 40 keys on rank 0, 90 in all, exp"):
        dd.Interleaved(16).place(0, [[2, 16, 40, 0, 0], [2, 16, 50, 0, 0]])
    for first, second in (([0, 1, 2], [2, 3, 4]), ([0, 1], [3, 4]), ([0, 3], [1, 4])):
        headers = [dd.Listed(ids).header(len(ids)) for ids in (first, second)]
        with pytest.raises(dosa.ArgumentError, match=r"^ids: found \d ids on all ranks, expected"):
            dd.Listed(first).place(0, headers)
    for ids in ([1, 1], [2, 1], [-1, 2], [0, 2**31]):
        with pytest.raises(dosa.ArgumentError, match=r"^ids: found other values, expected strict"):
            dd.Listed(ids)
    with pytest.raises(dosa.ArgumentTypeError, match=r"^ids: found float64 "):
        dd.Listed([0.5])
    with pytest.raises(dosa.ArgumentError, match=r"^ids: found 2 ids, expected 3, one for each"):
        dd.Listed([0, 1]).header(3)
    for size in (0, -4):
        with pytest.raises(dosa.ArgumentError, match=r"^page_size: found"):
            dd.Interleaved(size)
    with pytest.raises(dosa.ArgumentTypeError, match=r"^page_size: found float"):
        dd.Interleaved(2.0)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 64])
def test_slices_cover_all_rows_and_balance(size: int) -> None:
    rng = np.random.default_rng(size)
    shapes = {
        "causal": np.arange(1000),
        "batch": np.concatenate([np.arange(300), np.arange(500), np.arange(20)]),
        "one long row": np.array([10**6, 1, 1, 1]),
        "random": rng.integers(0, 5000, 777),
        "none": np.zeros(0, np.int64),
        "few": np.array([7, 9]),
    }
    for visible in shapes.values():
        for slices in (balanced_slices(visible, size), even_slices(len(visible), size)):
            rows = [row for first, last in slices for row in range(first, last)]
            assert rows == list(range(len(visible)))
            assert len(slices) == size
        cost = [int((visible[a:b] + 256).sum()) for a, b in balanced_slices(visible, size)]
        row = int(visible.max(initial=0)) + 256
        assert max(cost) <= sum(cost) / size + row


def kth_best(scores: Any, kept: int) -> float:
    """The K-th best number of a row; NaN where there are fewer."""
    numbers = np.sort(scores[~np.isnan(scores)])[::-1]
    return float(numbers[kept - 1]) if len(numbers) >= kept else float("nan")


@pytest.mark.parametrize("kept", [1, 3, 16, 100])
@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_bounds_are_proven_and_close(kept: int, size: int) -> None:
    """Never above the K-th best of all, and few candidates reach them where shards are alike."""
    rng = np.random.default_rng(kept * size)
    ranks = quantile_ranks(kept, size)
    assert ranks[-1] == kept
    assert np.all(np.diff(ranks) > 0)
    for trial in range(30):
        pools = [np.round(rng.normal(size=rng.integers(0, 300)), trial % 3) for _ in range(size)]
        for pool in pools:
            pool[rng.random(pool.size) < 0.05] = (np.nan, np.inf, -np.inf, 0.0)[trial % 4]
        best = np.full((size, 1, kept), np.nan, np.float32)
        for rank, pool in enumerate(pools):
            top = np.sort(pool.astype(np.float32))[::-1]
            top = np.concatenate([top[~np.isnan(top)], top[np.isnan(top)]])[:kept]
            best[rank, 0, : top.size] = top
        bound = proven_bounds(best[:, :, ranks - 1], ranks, kept)[0]
        true = kth_best(np.concatenate(pools).astype(np.float32), kept)
        assert np.isnan(bound) or bound <= true


def test_bounds_leave_few_candidates() -> None:
    rng = np.random.default_rng(5)
    size, kept = 8, 2048
    ranks = quantile_ranks(kept, size)
    best = -np.sort(-rng.normal(size=(size, 20, 20000)).astype(np.float32), axis=2)[:, :, :kept]
    bounds = proven_bounds(best[:, :, ranks - 1], ranks, kept)
    ids = np.zeros((20, kept), np.int32)
    sent = sum(count_reaching(best[rank], ids, bounds) for rank in range(size))
    assert np.all(sent >= kept)
    assert np.all(sent <= 1.2 * kept)


def test_candidates_that_reach_a_bound() -> None:
    nan = np.nan
    scores = np.array([[5, 4, 4, nan], [1, nan, nan, nan], [0.0, -0.0, -1, nan]], np.float32)
    ids = np.array([[0, 1, 2, 3], [0, 1, -1, -1], [0, 1, 2, -1]], np.int32)

    def count(*bounds: float) -> Any:
        return count_reaching(scores, ids, np.array(bounds, np.float32)).tolist()

    assert count(4, nan, 0.0) == [3, 2, 2]
    assert count(nan, 2, -0.0) == [4, 0, 2]
    assert count(4.5, -np.inf, -np.inf) == [1, 1, 3]


def test_records_are_the_order() -> None:
    nan = np.nan
    scores = np.array([np.inf, 3, 1e-45, 0.0, -0.0, -1e-45, -2, -np.inf, nan, -nan], np.float32)
    ids = np.array([4, 2**31 - 2, 6, 7, 8, 0, 9, 3, 0, 1], np.int32)
    found = records(scores, ids)
    assert np.all(np.diff(found.astype(object)) < 0)  # as listed: best first, ties by lower id
    assert records(scores, np.full(10, -1, np.int32)).tolist() == [0] * 10
