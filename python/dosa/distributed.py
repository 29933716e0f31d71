# SPDX-License-Identifier: Apache-2.0
"""Exact Top-K over the ranks of a torch.distributed process group.

    import dosa.distributed as dd
    found = dd.topk_over_keys(q, my_k, my_scale, weights, k_start, k_end, sharding=dd.Interleaved())
    found = dd.topk_over_rows(q, k, k_scale, weights, k_start, k_end)

Both return on every rank the bytes that `dosa.topk` returns where one process holds everything, on
the host or on CUDA devices. `paged_topk_over_keys` does so for decode steps, and `merge_over_ranks`
is the merge alone. The group is the caller's: gloo, or NCCL between devices. Nothing is kept
between calls. docs/distributed.md states the protocol, its cost and its failures.
"""

from __future__ import annotations

from typing import Any, Literal, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from dosa._arrays import is_tensor
from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._exchange import Exchange, RankError, Traffic, Transport, backends
from dosa._indexer import MAX_TOPK, CallOptions, Indexer, Mapping
from dosa._libraries import on_device
from dosa._options import Options, Order, integer, word
from dosa._rank_arrays import (
    check_library,
    clamped_windows,
    digest_of,
    local_windows,
    on_host,
    plain,
    slice_rows,
    torch_module,
)
from dosa._rank_calls import (
    Candidates,
    Found,
    check_options,
    compare_headers,
    described,
    found_of,
    header_of,
    select_and_merge,
    transport_of,
    wait_for,
    ways_of,
)
from dosa._rank_decode import paged_topk_over_keys
from dosa._results import Stats
from dosa._rounds import Wanted
from dosa._shards import Contiguous, Interleaved, Listed, Sharding, balanced_slices
from dosa._ways import GroupWays, join, merge_tensors

__all__ = [
    "Contiguous",
    "Found",
    "Interleaved",
    "Listed",
    "RankError",
    "Traffic",
    "Transport",
    "merge_over_ranks",
    "paged_topk_over_keys",
    "topk_over_keys",
    "topk_over_rows",
]

# What ranks have to agree on, in the order of their headers; the sharding's five words follow.
_SHAPE = ("Q", "H", "D", "topk", "order", "scores", "result", "sharding", "page_size")
_INPUTS = ("q", "weights", "k_start", "k_end")
_SHARDING_WORDS = 5


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
    exchange = Exchange(transport_of(group, timeout, transport))
    check_library(q)

    def describe() -> tuple[NDArray[np.int64], Wanted]:
        if not isinstance(sharding, Sharding):
            expected = "Contiguous(), Interleaved(page_size) or Listed(ids)"
            raise ArgumentTypeError.of("sharding", type(sharding).__name__, expected)
        word("result", result, ("all", "rows", "local"))
        order = check_options(cast("dict[str, Any]", options))
        Indexer(**options)  # refuses options that do not exist
        kept = integer("topk", topk, 1, MAX_TOPK)
        wanted = Wanted(kept, order, bool(scores), result, options.get("threads", 0))
        problem = described(q, k, k_scale, weights, k_start, k_end, topk)
        own = sharding.header(problem.num_keys)
        inputs = [digest_of(array) for array in (q, weights, k_start, k_end)]
        return header_of(problem, wanted, own[:2], inputs, own), wanted

    size = len(_SHAPE) + len(_INPUTS) + _SHARDING_WORDS
    blank = (np.zeros(size, np.int64), Wanted(1, "id", False, "all"))
    header, wanted = exchange.attempt(describe, blank)
    headers = exchange.gather(header)
    compare_headers(headers, _SHAPE, _INPUTS)
    queries = int(header[0])

    def select() -> Candidates:
        words = [other[-_SHARDING_WORDS:].tolist() for other in headers]
        placement = sharding.place(exchange.rank, words)
        start, end = local_windows(q, placement, k_start, k_end, queries)
        indexer: Any = Indexer(**cast("Options", {**options, "order": "score"}))
        inputs = (*(plain(array) for array in (q, k, k_scale, weights)), start, end)
        found = indexer.topk(*inputs, topk, scores=True)
        return found.scores, placement.to_global(found.indices), found.stats

    return select_and_merge(exchange, group, q, select, wanted, queries)


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
    exchange = Exchange(transport_of(group, timeout, transport))
    inputs = (*_INPUTS, "k_scale")
    shape = (*_SHAPE[:-2], "N")
    per_row = (q, weights, k_start, k_end)
    scores = bool(options.get("scores", False))

    def describe() -> NDArray[np.int64]:
        word("result", result, ("all", "rows"))
        order = options.get("order", "id")
        wanted = Wanted(integer("topk", topk, 1, MAX_TOPK), order, bool(scores), result)
        problem = described(q, k, k_scale, weights, k_start, k_end, topk)
        digests = [digest_of(array) for array in (*per_row, k_scale)]
        return header_of(problem, wanted, [problem.num_keys], digests, [])

    header = exchange.attempt(describe, np.zeros(len(shape) + len(inputs), np.int64))
    compare_headers(exchange.gather(header), shape, inputs)
    queries, num_keys = int(header[0]), int(header[len(shape) - 1])
    bounds = [None if array is None else on_host(array) for array in (k_start, k_end)]
    start, end = clamped_windows(None, bounds[0], bounds[1], queries, num_keys)
    slices = balanced_slices(np.maximum(end - start, 0), exchange.size)
    own = slices[exchange.rank]

    def select() -> tuple[Any, Any, Stats | None]:
        given: dict[str, Any] = dict(options)
        mapping = {n: given.pop(n) for n in tuple(given) if n in Mapping.__annotations__}
        for name in ("index_offset", "page_table"):
            array = mapping.get(name)
            if array is not None and (name == "index_offset" or plain(array).ndim == 2):
                mapping[name] = slice_rows(name, array, own, queries)
        rows = [None if array is None else plain(array)[slice(*own)] for array in per_row]
        indexer: Any = Indexer(**given)
        found = indexer.topk(rows[0], plain(k), plain(k_scale), *rows[1:], topk, **mapping)
        return found.indices, found.scores, found.stats

    nothing: tuple[Any, Any, Stats | None] = (None, None, None)
    ids, values, stats = exchange.attempt(select, nothing)
    if result == "rows" or on_device(q):
        exchange.gather(np.zeros(0, np.uint8))  # all ranks learn whether all are well
    if result == "rows":
        return found_of(q, ids, values, own, stats, exchange.traffic)
    if on_device(q):
        parts = [ids] if values is None else [ids, values.view(ids.dtype)]
        ways = ways_of(exchange, group)
        joined = join(ways, torch_module().stack(parts, 1), slices)
        ids = joined[:, 0].contiguous()
        values = None if values is None else joined[:, 1].contiguous().view(values.dtype)
        wait_for(exchange, ids)
        return found_of(q, ids, values, (0, queries), stats, exchange.traffic)
    if ids is None:  # this rank has failed and says so in the next round
        ids = np.zeros((own[1] - own[0], topk), np.int32)
        values = ids.view(np.float32) if scores else None
    lengths = [(last - first) * topk for first, last in slices]
    ids = np.concatenate(exchange.scatter([ids] * exchange.size, lengths)).reshape(-1, topk)
    if values is not None:
        received = exchange.scatter([values] * exchange.size, lengths)
        values = np.concatenate(received).reshape(-1, topk)
    return found_of(q, ids, values, (0, queries), stats, exchange.traffic)


def merge_over_ranks(
    scores: Any,
    ids: Any,
    topk: int = 2048,
    *,
    group: Any = None,
    order: Order = "id",
    result: Literal["all", "rows"] = "all",
) -> tuple[Any, Any, tuple[int, int]]:
    """Return the K best of what all ranks have found, on the current stream.

    Every rank of the group calls it with tensors of the same shape. The group has to have a backend
    for them: NCCL for CUDA devices, gloo for the host. Nothing is compared between ranks and nobody
    waits for a device, so that with NCCL the call can be captured in a CUDA graph, along with the
    selection before it.

    Parameters
    ----------
    scores : (Q, C) float32 tensor
        Scores of the own candidates, in any order.
    ids : (Q, C) int32 tensor
        Their key ids in the whole context; those from the first negative one of a row on are not
        looked at.
    topk : int
        K, 1 to 8192 (4096 on a device).
    group : ProcessGroup, optional
        Default: the world.
    order : {"id", "score"}
        Of the result.
    result : {"all", "rows"}
        "all": every rank gets all rows. "rows": each rank gets an even slice of them.

    Returns
    -------
    ids : (rows, K) int32
    scores : (rows, K) float32
    rows : (begin, end)

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        As for `dosa.merge_topk`; also where the group has no backend for the tensors.
    """
    if not is_tensor(scores) or not is_tensor(ids):
        raise ArgumentTypeError.of("scores", type(scores).__name__, "a torch tensor, as ids")
    if scores.dim() != 2 or scores.shape != ids.shape or scores.dtype != torch_module().float32:
        found = f"{scores.dtype} {tuple(scores.shape)} and ids {ids.dtype} {tuple(ids.shape)}"
        raise ArgumentError.of("scores", found, "float32 (Q, C) and int32 (Q, C)")
    if ids.dtype != torch_module().int32 or ids.device != scores.device:
        found = f"{ids.dtype} on {ids.device}"
        raise ArgumentTypeError.of("ids", found, f"int32 on {scores.device}")
    on_host, on_cuda = backends(group)
    if not (on_cuda if scores.is_cuda else on_host):
        found = f"no backend for {scores.device.type} tensors"
        raise ArgumentError.of("group", found, "nccl for cuda, gloo for cpu")
    kept = integer("topk", topk, 1, MAX_TOPK)
    word("order", order, ("id", "score"))
    word("result", result, ("all", "rows"))
    wanted = Wanted(kept, order, True, result)
    return merge_tensors(GroupWays(group), scores.contiguous(), ids.contiguous(), wanted)
