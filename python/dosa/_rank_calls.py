# SPDX-License-Identifier: Apache-2.0
"""What the calls over ranks share: what has to agree, the merge, the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dosa import _core, _device
from dosa._arrays import is_tensor
from dosa._errors import ArgumentError
from dosa._exchange import Exchange, TorchTransport, Traffic, Transport, check_timeout
from dosa._indexer import _problem
from dosa._libraries import library_of, on_device
from dosa._options import Order, word
from dosa._rank_arrays import torch_module
from dosa._results import Stats
from dosa._rounds import Wanted, merge_ranks
from dosa._ways import GroupWays, HostWays, Ways, merge_tensors

# Scores in descending order, global ids, counts where they are known.
Candidates = tuple[Any, Any, Stats | None]


class Found(NamedTuple):
    """What one rank knows after a call."""

    indices: Any
    """(rows, K) int32: key ids of the whole context, -1 behind the last."""
    scores: Any
    """(rows, K) float32 in the order of `indices`, NaN behind the last; None unless asked for."""
    rows: tuple[int, int]
    """The rows [begin, end) of `indices`: all, or with ``result="rows"`` those of this rank."""
    stats: Stats | None
    """Counts of this rank's own selection; None on a device."""
    traffic: Traffic
    """Rounds, and bytes exchanged with the other ranks."""


def transport_of(group: Any, timeout: float, transport: Transport | None) -> Transport:
    seconds = check_timeout(timeout)
    return TorchTransport(group, seconds) if transport is None else transport


def check_options(options: dict[str, Any]) -> Order:
    """Return the order; refuse what does not carry over to parts of a context."""
    if options.get("index_form", "absolute") != "absolute":
        raise ArgumentError.of("index_form", repr(options["index_form"]), "'absolute'")
    for name in ("forced_first", "forced_last"):
        if options.get(name, 0) != 0:
            raise ArgumentError.of(name, repr(options[name]), "0 where keys are sharded")
    order = options.get("order", "id")
    word("order", order, ("id", "score"))
    return cast("Order", order)


def described(q: Any, *rest: Any) -> _core.Problem | _core.DeviceProblem:
    """Check the arrays of a call; the last argument is K."""
    if not on_device(q):
        return _problem(q, *rest)
    return _device.problem_of(library_of(q), (q, *rest[:-1], None, None), rest[-1], 1)


def header_of(
    problem: _core.Problem | _core.DeviceProblem,
    wanted: Wanted,
    more: list[int],
    digests: list[int],
    own: list[int],
) -> NDArray[np.int64]:
    shape = [problem.num_queries, problem.num_heads, problem.head_dim, wanted.topk]
    asked = [wanted.order == "score", wanted.scores, ("all", "rows", "local").index(wanted.result)]
    return np.array([*shape, *asked, *more, *digests, *own], np.int64)


def compare_headers(
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


def ways_of(exchange: Exchange, group: Any) -> Ways:
    """Return how tensors on a device go from rank to rank."""
    transport = exchange.transport
    if isinstance(transport, TorchTransport) and transport.on_device:
        return GroupWays(group, exchange)
    return HostWays(exchange)


def wait_for(exchange: Exchange, result: Any) -> None:
    """Wait for a result on a device, as a lost rank would leave it unfinished."""
    transport = exchange.transport
    if isinstance(transport, TorchTransport) and transport.on_device:
        transport.wait_for_device(result.device)


def select_and_merge(
    exchange: Exchange,
    group: Any,
    q: Any,
    select: Callable[[], Candidates],
    wanted: Wanted,
    queries: int,
) -> Found:
    """Select on this rank and merge over all."""
    nothing = np.full((queries, wanted.topk), -1, np.int32)
    failed: Candidates = (nothing.view(np.float32), nothing, None)
    if on_device(q):
        own = exchange.attempt(select, failed)
        exchange.gather(np.zeros(0, np.uint8))  # all ranks learn whether all are well
        ids, values, rows = merge_tensors(ways_of(exchange, group), own[0], own[1], wanted)
        wait_for(exchange, ids)
        return Found(ids, values, rows, own[2], exchange.traffic)
    own_scores, own_ids, stats = exchange.attempt(select, failed)
    ids, values, rows = merge_ranks(exchange, own_scores, own_ids, wanted)
    return found_of(q, ids, values if wanted.scores else None, rows, stats, exchange.traffic)


def found_of(
    q: Any, ids: Any, values: Any, rows: tuple[int, int], stats: Stats | None, traffic: Traffic
) -> Found:
    """Return arrays of the library of `q`."""
    if is_tensor(q) and not is_tensor(ids):
        ids = torch_module().from_numpy(ids)
        values = None if values is None else torch_module().from_numpy(values)
    return Found(ids, values, rows, stats, traffic)
