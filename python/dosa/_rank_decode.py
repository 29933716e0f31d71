# SPDX-License-Identifier: Apache-2.0
"""Decode steps whose requests are spread over ranks by pages."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from dosa._decode import PagedOptions, paged_topk
from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._exchange import Exchange, Transport
from dosa._indexer import MAX_TOPK
from dosa._options import integer, word
from dosa._rank_arrays import check_library, digest_of, each_query, plain
from dosa._rank_calls import (
    Candidates,
    Found,
    check_options,
    compare_headers,
    select_and_merge,
    transport_of,
)
from dosa._rounds import Wanted
from dosa._shards import Interleaved


def paged_topk_over_keys(
    q: Any,
    kv_cache: Any,
    weights: Any,
    context_lens: Any,
    block_table: Any,
    topk: int = 2048,
    *,
    sharding: Interleaved,
    group: Any = None,
    timeout: float = 60.0,
    result: Literal["all", "rows", "local"] = "all",
    transport: Transport | None = None,
    **options: Unpack[PagedOptions],
) -> Found:
    """Return the exact Top-K of a decode step whose requests are spread over the ranks by pages.

    Every rank of the group calls it, with the same queries and lengths and with its own pages.

    Parameters
    ----------
    q, weights : (B, next_n, H, D), (B * next_n, H)
        As for `dosa.paged_topk`; the same on all ranks, which is checked.
    kv_cache, block_table
        The pages of this rank; block i of a request holds its tokens i * page_size and so on of
        those that lie here.
    context_lens : (B, next_n) or (B,) int32
        Lengths of the whole requests; the same on all ranks.
    topk : int
        K, 1 to 8192 (4096 on a device).
    sharding : Interleaved
        Token p of every request lies on rank ``p // page_size % W``.
    group, timeout, result, transport
        As for `topk_over_keys`.
    **options
        As for `dosa.paged_topk`, `scores` included; witnesses remember what lies on this rank.
        Forced keys and index forms other than "absolute" are refused.

    Returns
    -------
    Found
        Positions in the requests. With ``result="all"`` the bytes that one rank with all pages
        would return.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError, RankError
        As for `topk_over_keys`.
    """
    exchange = Exchange(transport_of(group, timeout, transport))
    check_library(q)
    names = ("B", "next_n", "H", "D", "topk", "order", "scores", "result", "page_size")
    inputs = ("q", "weights", "context_lens")
    scores = bool(options.get("scores", False))

    def describe() -> tuple[NDArray[np.int64], Wanted]:
        if not isinstance(sharding, Interleaved):
            found = type(sharding).__name__
            raise ArgumentTypeError.of("sharding", found, "Interleaved(page_size)")
        word("result", result, ("all", "rows", "local"))
        order = check_options(dict(options))
        kept = integer("topk", topk, 1, MAX_TOPK)
        shape = tuple(q.shape)
        if len(shape) != 4:
            raise ArgumentError.of("q", f"shape {shape}", "(B, next_n, H, D)")
        if tuple(context_lens.shape) not in (shape[:1], shape[:2]):
            found = f"shape {tuple(context_lens.shape)}"
            raise ArgumentError.of("context_lens", found, f"{shape[:2]} or {shape[:1]}")
        wanted = Wanted(kept, order, bool(scores), result, options.get("threads", 0))
        asked = [order == "score", wanted.scores, ("all", "rows", "local").index(result)]
        digests = [digest_of(array) for array in (q, weights, context_lens)]
        header = [*shape, kept, *asked, sharding.page_size, *digests]
        return np.array(header, np.int64), wanted

    blank = (np.zeros(len(names) + len(inputs), np.int64), Wanted(1, "id", False, "all"))
    header, wanted = exchange.attempt(describe, blank)
    compare_headers(exchange.gather(header), names, inputs)

    def select() -> Candidates:
        placement = sharding.of_rank(exchange.rank, exchange.size)
        given: dict[str, Any] = {**options, "order": "score", "scores": True}
        lens = each_query(plain(context_lens), int(header[1]), given.pop("max_context", None))
        own = placement.count_below(lens.clip(min=0))
        own = own.astype(np.int32) if isinstance(own, np.ndarray) else own.int().contiguous()
        views: list[Any] = [plain(array) for array in (q, kv_cache, weights)]
        call: Any = paged_topk
        found = call(*views, own, plain(block_table), topk, **given)
        return found.scores, placement.to_global(found.indices), found.stats

    return select_and_merge(exchange, group, q, select, wanted, int(header[0] * header[1]))
