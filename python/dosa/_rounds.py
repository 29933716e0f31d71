# SPDX-License-Identifier: Apache-2.0
"""From each rank's own K best keys to the K best of all, in few rounds and few bytes.

Every function is called by all ranks of an exchange, with the own candidates of each: (Q, K) scores
in descending order, NaN last, and global ids, -1 behind the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dosa._exchange import Exchange
from dosa._merge import merge_topk
from dosa._options import Order
from dosa._shards import count_reaching, even_slices, proven_bounds, quantile_ranks, records

Scores = NDArray[np.float32]
Ids = NDArray[np.int32]

# Up to this many bytes received, one round with all candidates beats five that each wait.
DIRECT_BYTES = 1 << 20


class Wanted(NamedTuple):
    """What the caller wants to know of the answer."""

    topk: int
    order: Order
    scores: bool
    result: str
    threads: int = 0


def merge_ranks(
    exchange: Exchange, scores: Scores, ids: Ids, wanted: Wanted
) -> tuple[Ids, Scores, tuple[int, int]]:
    """Return ids, scores and the rows that they belong to; scores may be empty unless wanted."""
    if exchange.size * ids.size * 8 <= DIRECT_BYTES:
        return _merge_directly(exchange, scores, ids, wanted)
    return _merge_by_owners(exchange, scores, ids, wanted)


def _merge_directly(
    exchange: Exchange, scores: Scores, ids: Ids, wanted: Wanted
) -> tuple[Ids, Scores, tuple[int, int]]:
    """Every rank gets all candidates and merges them itself."""
    lists = np.stack(exchange.gather(np.stack([scores.view(np.int32), ids])))
    all_scores, all_ids = lists[:, 0].view(np.float32), lists[:, 1]
    rows = (0, ids.shape[0])
    if wanted.result == "rows":
        rows = even_slices(ids.shape[0], exchange.size)[exchange.rank]
    mine = slice(*rows)
    if wanted.result == "local":
        best, values = _merge(all_scores, all_ids, wanted, "score")
        found = _own_winners(scores, ids, _last_records(values, best), wanted)
    else:
        found = _merge(all_scores[:, mine], all_ids[:, mine], wanted, wanted.order)
    return (*found, rows)


def _merge_by_owners(
    exchange: Exchange, scores: Scores, ids: Ids, wanted: Wanted
) -> tuple[Ids, Scores, tuple[int, int]]:
    """Each rank merges a slice of the rows, from candidates that reach a bound proven before."""
    slices = even_slices(ids.shape[0], exchange.size)
    begin, end = slices[exchange.rank]
    bounds = _share_bounds(exchange, scores, wanted.topk, slices)
    all_scores, all_ids = _collect(exchange, scores, ids, bounds, slices)
    order: Order = "score" if wanted.result == "local" else wanted.order
    blank = (np.zeros((end - begin, wanted.topk), np.int32),) * 2
    best, values = exchange.attempt(
        lambda: _merge(all_scores, all_ids, wanted, order),
        cast("tuple[Ids, Scores]", (blank[0], blank[1].view(np.float32))),
    )
    if wanted.result == "rows":
        return best, values, (begin, end)
    rows = (0, ids.shape[0])
    if wanted.result == "local":
        last = _join(exchange, _last_records(values, best), slices)
        return (*_own_winners(scores, ids, last, wanted), rows)
    parts = [best, values.view(np.int32)] if wanted.scores else [best]
    joined = _join(exchange, np.stack(parts, axis=1), slices)
    joined_ids = np.ascontiguousarray(joined[:, 0])
    return joined_ids, np.ascontiguousarray(joined[:, -1]).view(np.float32), rows


def _share_bounds(
    exchange: Exchange, scores: Scores, topk: int, slices: list[tuple[int, int]]
) -> Scores:
    """Return a lower bound on each row's K-th best score of all; NaN where there is none."""
    begin, end = slices[exchange.rank]
    ranks = quantile_ranks(topk, exchange.size)
    described = scores[:, ranks - 1]
    parts = exchange.scatter(
        [described[first:last] for first, last in slices],
        [(end - begin) * ranks.size] * exchange.size,
    )
    quantiles = np.stack([part.reshape(end - begin, ranks.size) for part in parts])
    own = exchange.attempt(
        lambda: proven_bounds(quantiles, ranks, topk), np.zeros(end - begin, np.float32)
    )
    return _join(exchange, own, slices)


def _collect(
    exchange: Exchange,
    scores: Scores,
    ids: Ids,
    bounds: Scores,
    slices: list[tuple[int, int]],
) -> tuple[Scores, Ids]:
    """Return the lists of all ranks for the rows of this one, as wide as the longest list."""
    begin, end = slices[exchange.rank]
    counts = count_reaching(scores, ids, bounds).astype(np.int32)
    lengths = exchange.scatter(
        [counts[first:last] for first, last in slices], [end - begin] * exchange.size
    )
    sent = np.arange(ids.shape[1]) < counts[:, None]
    entries = exchange.scatter(
        [
            np.concatenate(
                [
                    scores[first:last][sent[first:last]].view(np.int32),
                    ids[first:last][sent[first:last]],
                ]
            )
            for first, last in slices
        ],
        [2 * int(length.sum()) for length in lengths],
    )
    width = max(int(length.max(initial=0)) for length in lengths)
    shape = (exchange.size, end - begin, width)
    all_scores, all_ids = np.zeros(shape, np.float32), np.full(shape, -1, np.int32)
    for rank, (length, entry) in enumerate(zip(lengths, entries, strict=True)):
        there = np.arange(width) < length[:, None]
        all_scores[rank][there] = entry[: entry.size // 2].view(np.float32)
        all_ids[rank][there] = entry[entry.size // 2 :]
    return all_scores, all_ids


def _join(exchange: Exchange, own: NDArray[Any], slices: list[tuple[int, int]]) -> NDArray[Any]:
    """Return the rows of all ranks; slices differ by at most one row."""
    longest = max(last - first for first, last in slices)
    padded = np.zeros((longest, *own.shape[1:]), own.dtype)
    padded[: own.shape[0]] = own
    found = exchange.gather(padded)
    parts = zip(found, slices, strict=True)
    return np.concatenate([part[: last - first] for part, (first, last) in parts])


def _merge(scores: Scores, ids: Ids, wanted: Wanted, order: Order) -> tuple[Ids, Scores]:
    found: tuple[Ids, Scores] = merge_topk(
        np.ascontiguousarray(scores),
        np.ascontiguousarray(ids),
        wanted.topk,
        order=order,
        threads=wanted.threads,
    )
    return found


def _last_records(scores: Scores, ids: Ids) -> NDArray[np.uint64]:
    """Return the K-th best key of each row as an integer; 0 where there are fewer than K."""
    return records(scores[:, -1], ids[:, -1])


def _own_winners(
    scores: Scores, ids: Ids, last: NDArray[np.uint64], wanted: Wanted
) -> tuple[Ids, Scores]:
    """Return what of the own candidates is among the K best of all."""
    own = records(scores, ids)
    kept = np.where((ids >= 0) & (own >= last[:, None]), ids, np.int32(-1))
    return _merge(scores[None], kept[None], wanted, wanted.order)
