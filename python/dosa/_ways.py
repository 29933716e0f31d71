# SPDX-License-Identifier: Apache-2.0
"""Merging tensors of candidates over ranks, where they lie: on a CUDA device or on the host.

Nothing here depends on values, only on shapes, so that with NCCL nobody waits and a CUDA graph can
be captured. The price against the rounds of `_rounds` are bytes: whole lists are sent, which links
between devices carry faster than anyone could agree on shorter ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dosa import _rounds
from dosa._exchange import Exchange
from dosa._merge import merge_topk
from dosa._rounds import Wanted
from dosa._shards import even_slices

if TYPE_CHECKING:
    from torch import Tensor

Span = tuple[int, int]


class Ways(Protocol):
    """Two collective operations on int32 tensors."""

    rank: int
    size: int

    def gather(self, own: Tensor) -> Tensor:
        """Return the tensors of all ranks, which have one shape, as (W, ...)."""

    def scatter(self, sent: Tensor, lengths: Sequence[int], own: int) -> Tensor:
        """Send lengths[r] elements of a flat tensor to rank r; return `own` from each, flat."""


class HostWays:
    """Through the host, by the rounds of an exchange, which carry failures along."""

    def __init__(self, exchange: Exchange) -> None:
        self.rank, self.size, self._exchange = exchange.rank, exchange.size, exchange

    def gather(self, own: Tensor) -> Tensor:
        return _placed(np.stack(self._exchange.gather(own.cpu().numpy())), own)

    def scatter(self, sent: Tensor, lengths: Sequence[int], own: int) -> Tensor:
        parts = np.split(sent.cpu().numpy(), np.cumsum(lengths)[:-1])
        found = self._exchange.scatter(parts, [own] * self.size)
        return _placed(np.concatenate(found), sent)


class GroupWays:
    """By a process group that has a backend for the tensors, on the current stream."""

    def __init__(self, group: Any, exchange: Exchange | None = None) -> None:
        import torch.distributed as dist

        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._dist, self._group, self._exchange = dist, group, exchange

    def gather(self, own: Tensor) -> Tensor:
        own = own.contiguous()
        found = own.new_empty((self.size, *own.shape))
        self._dist.all_gather_into_tensor(found.flatten(), own.flatten(), group=self._group)
        self._count(own.numel() * (self.size - 1), own.numel() * (self.size - 1))
        return found

    def scatter(self, sent: Tensor, lengths: Sequence[int], own: int) -> Tensor:
        found = sent.new_empty(self.size * own)
        here = [own] * self.size
        self._dist.all_to_all_single(found, sent, here, list(lengths), group=self._group)
        self._count(sent.numel() - lengths[self.rank], (self.size - 1) * own)
        return found

    def _count(self, sent: int, received: int) -> None:
        if self._exchange is not None:
            self._exchange.count(4 * sent, 4 * received)


def _placed(array: Any, like: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(array).to(like.device)


def merge_tensors(
    ways: Ways, scores: Tensor, ids: Tensor, wanted: Wanted
) -> tuple[Tensor, Tensor | None, Span]:
    """Return ids, scores where wanted, and the rows that they belong to.

    `scores` (Q, C) float32 and `ids` (Q, C) int32 are the own candidates of each rank in any order,
    -1 behind the last; C is the same on all ranks.
    """
    import torch

    both = torch.stack((scores.view(torch.int32), ids))
    if ways.size * both.numel() * 4 <= _rounds.DIRECT_BYTES:
        return _merge_directly(ways, both, wanted)
    return _merge_by_owners(ways, both, wanted)


def _merge_directly(ways: Ways, both: Tensor, wanted: Wanted) -> tuple[Tensor, Tensor | None, Span]:
    """Every rank gets all candidates and merges them itself."""
    lists = ways.gather(both)
    rows = (0, both.shape[1])
    if wanted.result == "local":
        ids, values = _merge(lists, wanted.topk, "score")
        return (*_own_winners(both, values[:, -1], ids[:, -1], wanted), rows)
    if wanted.result == "rows":
        rows = even_slices(rows[1], ways.size)[ways.rank]
    ids, values = _merge(lists[:, :, slice(*rows)], wanted.topk, wanted.order)
    return ids, values if wanted.scores else None, rows


def _merge_by_owners(
    ways: Ways, both: Tensor, wanted: Wanted
) -> tuple[Tensor, Tensor | None, Span]:
    """Each rank merges a slice of the rows."""
    import torch

    _, rows, width = both.shape
    slices = even_slices(rows, ways.size)
    begin, end = slices[ways.rank]
    sent = torch.cat([both[:, first:last].flatten() for first, last in slices])
    lengths = [2 * (last - first) * width for first, last in slices]
    lists = ways.scatter(sent, lengths, 2 * (end - begin) * width)
    order = "score" if wanted.result == "local" else wanted.order
    ids, values = _merge(lists.view(ways.size, 2, end - begin, width), wanted.topk, order)
    if wanted.result == "rows":
        return ids, values if wanted.scores else None, (begin, end)
    if wanted.result == "local":
        last = torch.stack((values[:, -1].view(torch.int32), ids[:, -1]), 1)
        last = join(ways, last, slices)
        least = last[:, 0].contiguous().view(torch.float32), last[:, 1]
        return (*_own_winners(both, *least, wanted), (0, rows))
    parts = [ids, values.view(torch.int32)] if wanted.scores else [ids]
    joined = join(ways, torch.stack(parts, 1), slices)
    found = joined[:, -1].contiguous().view(torch.float32) if wanted.scores else None
    return joined[:, 0].contiguous(), found, (0, rows)


def join(ways: Ways, own: Tensor, slices: Sequence[Span]) -> Tensor:
    """Return the rows of all ranks, of which rank r has those of slices[r]."""
    import torch

    longest = max(last - first for first, last in slices)
    padded = own.new_zeros((longest, *own.shape[1:]))
    padded[: own.shape[0]] = own
    found = ways.gather(padded)
    return torch.cat(
        [part[: last - first] for part, (first, last) in zip(found, slices, strict=True)]
    )


def _merge(lists: Tensor, topk: int, order: Any) -> tuple[Tensor, Tensor]:
    """Merge (L, 2, Q, C): the bits of scores, and ids."""
    import torch

    found: tuple[Tensor, Tensor] = merge_topk(
        lists[:, 0].view(torch.float32), lists[:, 1], topk, order=order
    )
    return found


def _own_winners(
    both: Tensor, least_score: Tensor, least_id: Tensor, wanted: Wanted
) -> tuple[Tensor, Tensor | None]:
    """Return what of the own candidates ranks no lower than the K-th key of all."""
    import torch

    scores, ids = both[0].view(torch.float32), both[1]
    last = _ranked(least_score, least_id)
    kept = torch.where((ids >= 0) & (_ranked(scores, ids) >= last[:, None]), ids, -1)
    # A list ends at its first negative id: what is kept has to come first.
    order = (kept < 0).to(torch.uint8).argsort(dim=1, stable=True)
    lists = torch.stack((both[0], kept)).gather(2, order.expand(2, -1, -1))
    found, values = _merge(lists[None], wanted.topk, wanted.order)
    return found, values if wanted.scores else None


def _ranked(scores: Tensor, ids: Tensor) -> Tensor:
    """Return keys as int64, greater ranks first: the order of the library; no key is the least."""
    import torch

    bits = (scores + 0.0).view(torch.int32)
    code = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    code = code.masked_fill(scores.isnan(), -(1 << 31)).to(torch.int64)
    found = (code << 32) | (0x7FFFFFFF - ids.to(torch.int64))
    return found.masked_fill(ids < 0, -(1 << 63))
