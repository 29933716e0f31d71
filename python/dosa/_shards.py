# SPDX-License-Identifier: Apache-2.0
"""Who holds which keys, who answers which rows, and what candidates have to be exchanged.

Plain functions of arrays, without any communication. Letters as in the package: Q rows, N keys of
the whole context, K kept keys, W ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dosa._errors import ArgumentError, ArgumentTypeError

Ints = NDArray[np.int64]


class Placement(Protocol):
    """The keys of one rank: a strictly increasing map from local to global ids.

    Because it increases, the local keys inside a global window [s, e) are those from
    `count_below(s)` up to `count_below(e)`: windows stay ranges whatever the sharding, and the
    tie rule, lower id first, is the same locally and globally.

    Both functions take NumPy arrays and torch tensors, wherever these lie, and wait for nothing.
    """

    num_keys: int
    """N."""

    def to_global(self, ids: Any) -> Any:
        """Return the global ids of local ones, int32; -1 stays -1."""

    def count_below(self, ids: Any) -> Any:
        """Return how many keys of this rank have a global id below each of `ids`, 0 to N."""


def _unless_none(found: Any, ids: Any) -> Any:
    """Return `found`, and -1 where the id is negative."""
    there = ids >= 0
    return found * there - ~there * 1


class _Run:
    """One range of the context."""

    def __init__(self, begin: int, count: int, num_keys: int) -> None:
        self.begin, self.count, self.num_keys = begin, count, num_keys

    def to_global(self, ids: Any) -> Any:
        return _int32(_unless_none(ids + self.begin, ids))

    def count_below(self, ids: Any) -> Any:
        return (ids - self.begin).clip(0, self.count)


class _Pages:
    """Every W-th page of `page_size` keys, from page `rank` on."""

    def __init__(self, page_size: int, rank: int, size: int, num_keys: int) -> None:
        self.page_size, self.rank, self.size, self.num_keys = page_size, rank, size, num_keys

    def to_global(self, ids: Any) -> Any:
        page, inside = ids // self.page_size, ids % self.page_size
        found = (page * self.size + self.rank) * self.page_size + inside
        return _int32(_unless_none(found, ids))

    def count_below(self, ids: Any) -> Any:
        page, inside = ids // self.page_size, ids % self.page_size
        whole = (page - self.rank + self.size - 1) // self.size  # own pages before this one
        part = inside * (page % self.size == self.rank)
        return whole.clip(min=0) * self.page_size + part


class _Listed:
    """Any ascending ids."""

    def __init__(self, ids: NDArray[np.int32], num_keys: int) -> None:
        self.ids, self.num_keys = ids, num_keys

    def to_global(self, ids: Any) -> Any:
        if not self.ids.size:
            return _int32(ids * 0 - 1)
        return _int32(_unless_none(self._like(ids)[ids.clip(min=0)], ids))

    def count_below(self, ids: Any) -> Any:
        if isinstance(ids, np.ndarray):
            return np.searchsorted(self.ids, ids, "left").astype(np.int64)
        import torch

        return torch.searchsorted(self._like(ids), ids.to(torch.int32))

    def _like(self, ids: Any) -> Any:
        """Return the own ids in the library and on the device of `ids`."""
        if isinstance(ids, np.ndarray):
            return self.ids
        import torch

        return torch.from_numpy(self.ids).to(ids.device)


def _int32(ids: Any) -> Any:
    return ids.astype(np.int32) if isinstance(ids, np.ndarray) else ids.int()


class Contiguous:
    """Rank r holds the keys behind those of rank r - 1; any lengths, also none."""

    def header(self, count: int) -> list[int]:
        """Return what the other ranks have to know."""
        return [1, 0, count, 0, 0]

    def place(self, rank: int, headers: Sequence[Sequence[int]]) -> Placement:
        """Return the keys of `rank`."""
        counts = [header[2] for header in headers]
        return _Run(sum(counts[:rank]), counts[rank], sum(counts))


class Interleaved:
    """Page p of `page_size` keys lies on rank p modulo W; a page size of 1 is round robin.

    Parameters
    ----------
    page_size : int
        Keys of a page, at least 1. The last page may be shorter.
    """

    def __init__(self, page_size: int = 64) -> None:
        if isinstance(page_size, bool) or not isinstance(page_size, int):
            raise ArgumentTypeError.of("page_size", type(page_size).__name__, "an integer")
        if page_size < 1:
            raise ArgumentError.of("page_size", str(page_size), "at least 1")
        self.page_size = page_size

    def of_rank(self, rank: int, size: int) -> Placement:
        """Return the keys of `rank` of requests of any length."""
        return _Pages(self.page_size, rank, size, 2**31 - 1)

    def header(self, count: int) -> list[int]:
        """Return what the other ranks have to know."""
        return [2, self.page_size, count, 0, 0]

    def place(self, rank: int, headers: Sequence[Sequence[int]]) -> Placement:
        """Return the keys of `rank`; refuses counts that no context of their sum has."""
        counts = [header[2] for header in headers]
        total, size = sum(counts), len(counts)
        for other, count in enumerate(counts):
            expected = _Pages(self.page_size, other, size, total).count_below(np.array([total]))[0]
            if count != expected:
                found = f"{count} keys on rank {other}, {total} in all"
                raise ArgumentError.of("k", found, f"{expected} keys in pages of {self.page_size}")
        return _Pages(self.page_size, rank, size, total)


class Listed:
    """The keys of this rank by their global ids; each id of 0 .. N - 1 is on exactly one rank.

    Parameters
    ----------
    ids : (n,) integers, strictly ascending
        The global id of every local key.
    """

    def __init__(self, ids: Any) -> None:
        array = np.asarray(ids)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ArgumentTypeError.of("ids", f"{array.dtype} {array.shape}", "(n,) integers")
        if array.size and (array[0] < 0 or array[-1] > 2**31 - 1 or np.any(np.diff(array) <= 0)):
            raise ArgumentError.of("ids", "other values", "strictly ascending ids of 0 to 2^31 - 1")
        self.ids = array.astype(np.int32)

    def header(self, count: int) -> list[int]:
        """Return what the other ranks have to know: two moments show ids that are on no rank."""
        if count != self.ids.size:
            raise ArgumentError.of("ids", f"{self.ids.size} ids", f"{count}, one for each key")
        wide = self.ids.astype(np.uint64)
        return [3, 0, count, _wrap(int(wide.sum())), _wrap(int((wide * wide).sum()))]

    def place(self, rank: int, headers: Sequence[Sequence[int]]) -> Placement:
        """Return the keys of `rank`; refuses ids that are not those of 0 .. N - 1, each once."""
        total = sum(header[2] for header in headers)
        wide = np.arange(total, dtype=np.uint64)
        for column, moment in ((3, wide.sum()), (4, (wide * wide).sum())):
            found = sum(header[column] for header in headers)
            if _wrap(found) != _wrap(int(moment)):
                expected = f"each of 0 to {total - 1} on exactly one rank"
                raise ArgumentError.of("ids", f"{total} ids on all ranks", expected)
        return _Listed(self.ids, total)


Sharding = Contiguous | Interleaved | Listed


def _wrap(value: int) -> int:
    """Return `value` modulo 2^64 as a signed number."""
    return (value + 2**63) % 2**64 - 2**63


def even_slices(rows: int, size: int) -> list[tuple[int, int]]:
    """Return W slices of `rows`, of lengths that differ by at most one."""
    cuts = [rank * rows // size for rank in range(size + 1)]
    return list(itertools.pairwise(cuts))


def balanced_slices(visible: Ints, size: int) -> list[tuple[int, int]]:
    """Return W slices of rows with nearly equal numbers of visible keys.

    A row counts as its visible keys and a constant for what it costs anyway. Every rank's share
    differs from the mean by less than one row's cost.
    """
    fixed = 256  # keys whose screening takes as long as planning a row
    cost = np.concatenate([[0], np.cumsum(visible.astype(np.int64) + fixed)])
    targets = np.arange(1, size) * cost[-1] / size
    after = np.searchsorted(cost, targets, "left")
    nearer = np.abs(cost[np.maximum(after - 1, 0)] - targets) <= np.abs(cost[after] - targets)
    inner = np.maximum(after - nearer, 0).tolist()
    cuts = [0, *inner, len(visible)]
    return list(itertools.pairwise(cuts))


def quantile_ranks(kept: int, size: int) -> NDArray[np.int64]:
    """Return the ranks whose scores describe a rank's candidates to the others, ascending, 1 to K.

    Even steps of K / 8W up to twice a rank's fair share, so that the bound found from them is
    exceeded by about 9/8 K candidates in all; steps of a quarter above, for ranks that hold more.
    """
    step = max(1, kept // (8 * size))
    ranks = list(range(step, min(kept, 2 * kept // size) + 1, step))
    last = ranks[-1] if ranks else step
    while last < kept:
        last = min(kept, last + max(step, last // 4))
        ranks.append(last)
    return np.array(ranks or [kept], np.int64)


def proven_bounds(quantiles: NDArray[np.float32], ranks: Ints, kept: int) -> NDArray[np.float32]:
    """Return a lower bound on each row's K-th best score of all keys; NaN where nothing is proven.

    Parameters
    ----------
    quantiles : (W, Q, m) float32
        The score of rank w's candidate at place `ranks[j]` of row t, NaN where it has fewer.
    ranks : (m,)
        Those of `quantile_ranks`.
    kept : int
        K.

    Notes
    -----
    A score at place p proves p keys of its rank at or above it, and the keys of different ranks
    are different keys. Sorted by score, the places add up; where they reach K, that score has K
    witnesses (E2).
    """
    steps = np.diff(ranks, prepend=0)
    size, rows, places = quantiles.shape
    flat = np.moveaxis(quantiles, 0, 1).reshape(rows, size * places)
    weights = np.broadcast_to(np.tile(steps, size), flat.shape)
    weights = np.where(np.isnan(flat), 0, weights)
    order = np.argsort(-flat, axis=1, kind="stable")  # NaN last
    proven = np.cumsum(np.take_along_axis(weights, order, 1), axis=1) >= kept
    first = np.argmax(proven, axis=1)[:, None]
    found = np.take_along_axis(np.take_along_axis(flat, order, 1), first, 1)[:, 0]
    return np.where(proven.any(axis=1), found, np.float32(np.nan)).astype(np.float32)


def count_reaching(
    scores: NDArray[np.float32], ids: NDArray[np.int32], bounds: NDArray[np.float32]
) -> Ints:
    """Return how many candidates of each row, best first, may be among the K best of all keys.

    Shapes: scores (Q, C) descending, NaN last; ids (Q, C), -1 behind the last; bounds (Q,).
    """
    below = scores < bounds[:, None]
    below |= np.isnan(scores) & ~np.isnan(bounds[:, None])  # K keys with a number rank before
    counts: Ints = np.count_nonzero((ids >= 0) & ~below, axis=1)
    return counts


def records(scores: NDArray[np.float32], ids: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return keys as integers, greater ranks first: the order of the library (0 where id is -1)."""
    bits = (scores + np.float32(0)).view(np.uint32)
    code = np.where(bits >> 31, ~bits, bits | np.uint32(0x80000000))
    code = np.where(np.isnan(scores), np.uint32(0), code).astype(np.uint64)
    inverse = (~ids.view(np.uint32)).astype(np.uint64)
    return np.where(ids < 0, np.uint64(0), (code << np.uint64(32)) | inverse)
