# SPDX-License-Identifier: Apache-2.0
"""Exact Top-K over the ranks of a torch.distributed process group.

    import dosa.distributed as dd
    found = dd.topk_over_keys(q, my_k, my_scale, weights, k_start, k_end, sharding=dd.Interleaved())
    found = dd.topk_over_rows(q, k, k_scale, weights, k_start, k_end)

Both return on every rank the bytes that `dosa.topk` returns where one process holds everything. The
group is the caller's and has to have a backend for CPU tensors (gloo); the score model is `ieee`.
Nothing is kept between calls. docs/distributed.md states the protocol, its cost and its failures.
"""

from __future__ import annotations

import zlib
from typing import Any, Literal, NamedTuple, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from dosa import _core
from dosa._arrays import is_tensor
from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._exchange import Exchange, RankError, TorchTransport, Traffic, Transport, check_timeout
from dosa._indexer import MAX_TOPK, CallOptions, Indexer, Mapping, _problem
from dosa._options import Options, Order, integer, word
from dosa._results import Stats
from dosa._rounds import Wanted, merge_ranks
from dosa._shards import Contiguous, Interleaved, Listed, Placement, Sharding, balanced_slices

__all__ = [
    "Contiguous",
    "Found",
    "Interleaved",
    "Listed",
    "RankError",
    "Traffic",
    "Transport",
    "topk_over_keys",
    "topk_over_rows",
]

# What ranks have to agree on, in the order of their headers; the sharding's five words follow.
_SHAPE = ("Q", "H", "D", "topk", "order", "scores", "result", "sharding", "page_size")
_INPUTS = ("q", "weights", "k_start", "k_end")
_SHARDING_WORDS = 5


class Found(NamedTuple):
    """What one rank knows after a call."""

    indices: Any
    """(rows, K) int32: key ids of the whole context, -1 behind the last."""
    scores: Any
    """(rows, K) float32 in the order of `indices`, NaN behind the last; None unless asked for."""
    rows: tuple[int, int]
    """The rows [begin, end) of `indices`: all, or with ``result="rows"`` those of this rank."""
    stats: Stats
    """Counts of this rank's own selection."""
    traffic: Traffic
    """Rounds, and bytes exchanged with the other ranks."""


def topk_over_keys(
    q: Any,
    k: Any,
    k_scale: Any,
    weights: Any,
    k_start: Any = None,
    k_end: Any = None,
    topk: int = 2048,
    *,
    sharding: Sharding,
    group: Any = None,
    timeout: float = 60.0,
    result: Literal["all", "rows", "local"] = "all",
    scores: bool = False,
    transport: Transport | None = None,
    **options: Unpack[Options],
) -> Found:
    """Return the exact Top-K of keys that are spread over the ranks.

    Every rank of the group calls it, with the same queries and windows and with its own keys.

    Parameters
    ----------
    q, weights : (Q, H, D), (Q, H)
        As for `dosa.topk`; the same on all ranks, which is checked.
    k, k_scale : (n, D), (n,)
        The keys of this rank in ascending order of their global ids; n may be 0.
    k_start, k_end : (Q,) int32, optional
        Windows of global key ids; the same on all ranks.
    topk : int
        K, 1 to 8192.
    sharding : Contiguous, Interleaved or Listed
        Which global id each local key has. N is what all ranks hold together.
    group : ProcessGroup, optional
        Default: the world.
    timeout : float
        Seconds that a rank waits for the others in one round.
    result : {"all", "rows", "local"}
        "all": every rank gets all rows. "rows": each rank gets an even slice of them, `Found.rows`.
        "local": all rows, but of each only the winners among this rank's own keys (global ids):
        what attention over sharded keys needs.
    scores : bool
        Return the scores too.
    transport : Transport, optional
        Collective operations of the caller's own in place of `group` and `timeout`.
    **options
        As for `dosa.topk`. Forced keys and index forms other than "absolute" are refused: ids can
        be mapped in the result.

    Returns
    -------
    Found
        With ``result="all"`` the bytes that one rank with all keys would return.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        As for `dosa.topk`, on the rank whose argument it is; on all ranks where they disagree.
    RankError
        Another rank failed, is gone, or did not answer in time.
    """
    exchange = Exchange(_transport(group, timeout, transport))

    def describe() -> tuple[NDArray[np.int64], Wanted]:
        if not isinstance(sharding, Sharding):
            expected = "Contiguous(), Interleaved(page_size) or Listed(ids)"
            raise ArgumentTypeError.of("sharding", type(sharding).__name__, expected)
        word("result", result, ("all", "rows", "local"))
        order = _check_options(cast("dict[str, Any]", options))
        Indexer(**options)  # refuses options that do not exist
        kept = integer("topk", topk, 1, MAX_TOPK)
        wanted = Wanted(kept, order, bool(scores), result, options.get("threads", 0))
        problem = _problem(q, k, k_scale, weights, k_start, k_end, topk)
        own = sharding.header(problem.num_keys)
        inputs = [_digest(array) for array in (q, weights, k_start, k_end)]
        return _header(problem, wanted, own[:2], inputs, own), wanted

    size = len(_SHAPE) + len(_INPUTS) + _SHARDING_WORDS
    blank = (np.zeros(size, np.int64), Wanted(1, "id", False, "all"))
    header, wanted = exchange.attempt(describe, blank)
    headers = exchange.gather(header)
    _compare(headers, _SHAPE, _INPUTS)
    queries = int(header[0])

    def select() -> tuple[NDArray[np.float32], NDArray[np.int32], Stats]:
        words = [other[-_SHARDING_WORDS:].tolist() for other in headers]
        placement = sharding.place(exchange.rank, words)
        start, end = _local_windows(placement, k_start, k_end, queries)
        indexer: Any = Indexer(**cast("Options", {**options, "order": "score"}))
        inputs = (*(_numpy(array) for array in (q, k, k_scale, weights)), start, end)
        found = indexer.topk(*inputs, topk, scores=True)
        return found.scores, placement.to_global(found.indices), found.stats

    nothing = np.full((queries, topk), -1, np.int32)
    failed = (nothing.view(np.float32), nothing, cast("Stats", None))
    own_scores, own_ids, stats = exchange.attempt(select, failed)
    ids, values, rows = merge_ranks(exchange, own_scores, own_ids, wanted)
    return _found(q, ids, values if scores else None, rows, stats, exchange.traffic)


def topk_over_rows(
    q: Any,
    k: Any,
    k_scale: Any,
    weights: Any,
    k_start: Any = None,
    k_end: Any = None,
    topk: int = 2048,
    *,
    group: Any = None,
    timeout: float = 60.0,
    result: Literal["all", "rows"] = "all",
    transport: Transport | None = None,
    **options: Unpack[CallOptions],
) -> Found:
    """Return the exact Top-K, each rank answering a slice of the rows.

    Every rank of the group calls it with the same arguments. Slices are neighbouring rows with
    nearly equal numbers of visible keys; ranks may have none.

    Parameters
    ----------
    q, k, k_scale, weights, k_start, k_end, topk, **options
        As for `dosa.topk`, `scores` and the index forms included; the same on all ranks. That is
        checked for shapes and for the values of all but k and the options.
    group, timeout, transport
        As for `topk_over_keys`.
    result : {"all", "rows"}
        "all": every rank gets all rows. "rows": each rank keeps those it answered, `Found.rows`.

    Returns
    -------
    Found
        The bytes that one rank would return.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError, RankError
        As for `topk_over_keys`.
    """
    exchange = Exchange(_transport(group, timeout, transport))
    inputs = (*_INPUTS, "k_scale")
    shape = (*_SHAPE[:-2], "N")
    per_row = (q, weights, k_start, k_end)
    scores = bool(options.get("scores", False))

    def describe() -> NDArray[np.int64]:
        word("result", result, ("all", "rows"))
        order = options.get("order", "id")
        wanted = Wanted(integer("topk", topk, 1, MAX_TOPK), order, bool(scores), result)
        problem = _problem(q, k, k_scale, weights, k_start, k_end, topk)
        digests = [_digest(array) for array in (*per_row, k_scale)]
        return _header(problem, wanted, [problem.num_keys], digests, [])

    header = exchange.attempt(describe, np.zeros(len(shape) + len(inputs), np.int64))
    _compare(exchange.gather(header), shape, inputs)
    queries, num_keys = int(header[0]), int(header[len(shape) - 1])
    start, end = _windows(k_start, k_end, queries, num_keys)
    slices = balanced_slices(np.maximum(end - start, 0), exchange.size)
    own = slices[exchange.rank]

    def select() -> tuple[NDArray[np.int32], NDArray[np.float32] | None, Stats]:
        given: dict[str, Any] = dict(options)
        mapping = {n: given.pop(n) for n in tuple(given) if n in Mapping.__annotations__}
        for name in ("index_offset", "page_table"):
            array = mapping.get(name)
            if array is not None and (name == "index_offset" or _numpy(array).ndim == 2):
                mapping[name] = _slice(name, array, own, queries)
        rows = [None if array is None else _numpy(array)[slice(*own)] for array in per_row]
        indexer: Any = Indexer(**given)
        found = indexer.topk(rows[0], _numpy(k), _numpy(k_scale), *rows[1:], topk, **mapping)
        return found.indices, found.scores, found.stats

    blank = np.zeros((own[1] - own[0], topk), np.int32)
    ids, values, stats = exchange.attempt(
        select, (blank, blank.view(np.float32) if scores else None, cast("Stats", None))
    )
    if result == "rows":
        exchange.gather(np.zeros(0, np.uint8))  # all ranks learn whether all are well
        return _found(q, ids, values, own, stats, exchange.traffic)
    lengths = [(last - first) * topk for first, last in slices]
    ids = np.concatenate(exchange.scatter([ids] * exchange.size, lengths)).reshape(-1, topk)
    if values is not None:
        parts = exchange.scatter([values] * exchange.size, lengths)
        values = np.concatenate(parts).reshape(-1, topk)
    return _found(q, ids, values, (0, queries), stats, exchange.traffic)


def _transport(group: Any, timeout: float, transport: Transport | None) -> Transport:
    seconds = check_timeout(timeout)
    return TorchTransport(group, seconds) if transport is None else transport


def _check_options(options: dict[str, Any]) -> Order:
    """Return the order; refuse what does not carry over to parts of a context."""
    if options.get("index_form", "absolute") != "absolute":
        raise ArgumentError.of("index_form", repr(options["index_form"]), "'absolute'")
    for name in ("forced_first", "forced_last"):
        if options.get(name, 0) != 0:
            raise ArgumentError.of(name, repr(options[name]), "0 where keys are sharded")
    order = options.get("order", "id")
    word("order", order, ("id", "score"))
    return cast("Order", order)


def _header(
    problem: _core.Problem, wanted: Wanted, more: list[int], digests: list[int], own: list[int]
) -> NDArray[np.int64]:
    shape = [problem.num_queries, problem.num_heads, problem.head_dim, wanted.topk]
    asked = [wanted.order == "score", wanted.scores, ("all", "rows", "local").index(wanted.result)]
    return np.array([*shape, *asked, *more, *digests, *own], np.int64)


def _compare(
    headers: list[NDArray[np.int64]], shape: tuple[str, ...], inputs: tuple[str, ...]
) -> None:
    """Refuse, on all ranks with the same words, what differs between them."""
    for column, name in enumerate((*shape, *inputs)):
        for rank, header in enumerate(headers):
            first, other = int(headers[0][column]), int(header[column])
            if first == other:
                continue
            found = f"{other} on rank {rank} and {first} on rank 0"
            if column >= len(shape):
                found = f"other values on rank {rank} than on rank 0"
            raise ArgumentError.of(name, found, "the same on all ranks")


def _numpy(array: Any) -> NDArray[Any]:
    """Return the same memory as a NumPy array; codes as uint8."""
    if is_tensor(array):
        import torch

        array = array.detach()
        return np.asarray((array.view(torch.uint8) if array.element_size() == 1 else array).numpy())
    found = np.asarray(array)
    return found.view(np.uint8) if found.dtype.itemsize == 1 else found


def _digest(array: Any) -> int:
    """Return a number that differs where the values do, for all that mistakes can do."""
    return 0 if array is None else zlib.crc32(np.ascontiguousarray(_numpy(array)).data)


def _windows(
    k_start: Any, k_end: Any, queries: int, num_keys: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the windows of all rows, clamped."""
    start = np.zeros(queries, np.int64) if k_start is None else _numpy(k_start).astype(np.int64)
    end = np.full(queries, num_keys) if k_end is None else _numpy(k_end).astype(np.int64)
    return np.clip(start, 0, num_keys), np.clip(end, 0, num_keys)


def _local_windows(
    placement: Placement, k_start: Any, k_end: Any, queries: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the ranges of local keys that lie in the rows' windows."""
    start, end = _windows(k_start, k_end, queries, placement.num_keys)
    below = placement.count_below
    return below(start).astype(np.int32), below(end).astype(np.int32)


def _slice(name: str, array: Any, rows: tuple[int, int], queries: int) -> NDArray[Any]:
    """Return the rows of an array that has one for each query."""
    found = _numpy(array)
    if found.shape[0] != queries:
        raise ArgumentError.of(name, f"{found.shape[0]} rows", str(queries))
    return found[slice(*rows)]


def _found(
    q: Any, ids: Any, values: Any, rows: tuple[int, int], stats: Stats, traffic: Traffic
) -> Found:
    """Return arrays of the library of `q`."""
    if is_tensor(q):
        import torch

        ids = torch.from_numpy(ids)
        values = None if values is None else torch.from_numpy(values)
    return Found(ids, values, rows, stats, traffic)
