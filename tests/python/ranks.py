# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of one process, and contexts cut into shards."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dosa.distributed as dd
import oracle

Array = NDArray[Any]


class Board:
    """Where the threads of a group leave their messages for each other."""

    def __init__(self, size: int, timeout: float = 30.0) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.timeout = timeout

    def wait(self) -> None:
        try:
            self.barrier.wait(self.timeout)
        except threading.BrokenBarrierError:
            raise dd.RankError("group: found no answer") from None


class ThreadTransport:
    """The two collective operations, and the bytes that they carry between ranks."""

    def __init__(self, board: Board, rank: int, size: int) -> None:
        self.rank, self.size, self._board = rank, size, board
        self.received = 0

    def all_gather(self, data: Array) -> Sequence[Array]:
        found = self._swap(data.copy())
        assert len({part.size for part in found}) == 1, "messages of different lengths"
        self.received += sum(part.size for r, part in enumerate(found) if r != self.rank)
        return found

    def all_to_all(self, parts: Sequence[Array], lengths: Sequence[int]) -> Sequence[Array]:
        assert len(parts) == self.size
        found = [sent[self.rank] for sent in self._swap([part.copy() for part in parts])]
        assert [part.size for part in found] == list(lengths)
        self.received += sum(part.size for r, part in enumerate(found) if r != self.rank)
        return found

    def _swap(self, own: Any) -> list[Any]:
        self._board.slots[self.rank] = own
        self._board.wait()
        found = list(self._board.slots)
        self._board.wait()  # nobody overwrites what others still read
        return found


def run_ranks(size: int, work: Callable[[ThreadTransport], Any]) -> list[Any]:
    """Run work(transport) on every rank; return the results."""
    found = run_failing(size, work)
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def run_failing(
    size: int, work: Callable[[ThreadTransport], Any], timeout: float = 30.0
) -> list[Any]:
    """Run work(transport) on every rank; return results, exceptions in their place."""
    board = Board(size, timeout)

    def one(rank: int) -> Any:
        try:
            return work(ThreadTransport(board, rank, size))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def cut(kind: str, num_keys: int, size: int) -> list[Array]:
    """Return the global ids of each rank."""
    ids = np.arange(num_keys, dtype=np.int64)
    if kind == "contiguous":
        return np.array_split(ids, size)
    if kind == "uneven":  # one key a rank, the rest on the last
        bounds = np.minimum([*range(size), num_keys], num_keys)
        return [ids[first:last] for first, last in itertools.pairwise(bounds)]
    if kind == "empty":  # all keys on the last rank
        return [ids[:0]] * (size - 1) + [ids]
    if kind in ("pages", "round robin"):
        page = 16 if kind == "pages" else 1
        return [ids[ids // page % size == rank] for rank in range(size)]
    owner = np.random.default_rng(num_keys).integers(0, size, num_keys)  # "listed"
    return [ids[owner == rank] for rank in range(size)]


KINDS = ("contiguous", "uneven", "empty", "pages", "round robin", "listed")


def sharding(kind: str, own: Array) -> dd.Contiguous | dd.Interleaved | dd.Listed:
    """Return how a rank says which keys it has."""
    if kind in ("contiguous", "uneven", "empty"):
        return dd.Contiguous()
    if kind == "listed":
        return dd.Listed(own)
    return dd.Interleaved(16 if kind == "pages" else 1)


def over_keys(inputs: oracle.Inputs, kind: str, transport: Any, topk: int, **more: Any) -> Any:
    """Call topk_over_keys on the shard of one rank."""
    own = cut(kind, len(inputs.k), transport.size)[transport.rank]
    return dd.topk_over_keys(
        inputs.q,
        inputs.k[own],
        inputs.k_scale[own],
        inputs.weights,
        inputs.k_start,
        inputs.k_end,
        topk,
        sharding=sharding(kind, own),
        transport=transport,
        threads=1,
        **more,
    )
