# SPDX-License-Identifier: Apache-2.0
"""Top-K of one sequence's indexer scores, without a buffer of (S, T) or (H, S, T)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_ID = 0x7FFFFFFF
# The order of NaN: below -Inf, whose order is -0x7F800001. And a slot without a key, below all.
_NAN_ORDER = -0x7FFFFFFF
_NO_KEY = -(1 << 63)
_ROWS = 128
_LEAST_KEYS = 1024


def scores(q: Tensor, k: Tensor, weights: Tensor, scale: float) -> Tensor:
    """Return indexer scores in fp32, operation by operation as transformers computes them.

    Parameters
    ----------
    q : (S, H, D) float32
        Query heads.
    k : (T, D) float32
        Keys.
    weights : (S, H) float32
        Head weights, with H^-1/2 folded in.
    scale : float
        D^-1/2.

    Returns
    -------
    (S, T) float32
        ``sum_h weights[s,h] * max(0, scale * q[s,h] . k[t])``. Only the order in which matrix
        products sum may differ from the model's.
    """
    rows, heads, dim = q.shape
    dots = (q.reshape(rows * heads, dim) @ k.T).mul_(scale).relu_()
    return (weights.unsqueeze(1) @ dots.view(rows, heads, -1)).squeeze(1)


def ranked(values: Tensor, ids: Tensor) -> Tensor:
    """Return int64 numbers in the order of selection: higher score, then lower id; NaN last.

    `values` is (S, T) float32, `ids` (T,) int64. -0 equals +0.
    """
    import torch

    bits = (values + 0.0).view(torch.int32)
    order = bits ^ ((bits >> 31) & _LARGEST_ID)
    order = order.masked_fill_(values.isnan(), _NAN_ORDER)
    return (order.to(torch.int64) << 32) | (_LARGEST_ID - ids)


def native(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    scale: float,
    start: Tensor,
    end: Tensor,
    topk: int,
    seen: Tensor | None = None,
    budget: int = 64 << 20,
) -> Tensor:
    """Return the `topk` best visible keys of every query, every key scored with all heads.

    Parameters
    ----------
    q, k, weights, scale
        As for `scores`, in any floating dtype; converted to fp32 by the tile.
    start, end : (S,) int64
        The window of each query.
    topk : int
        K, at most T.
    seen : (S, T) bool, optional
        What a query sees within its window.
    budget : int
        Bytes of the scores of a block of rows, and of those of all heads for a tile of its keys;
        at least one row, and 1024 keys.

    Returns
    -------
    (S, K) int64
        min(K, visible) ids in ascending order, then -1; ties go to the lower id.
    """
    import torch

    rows, heads, _ = q.shape
    out = torch.full((rows, topk), -1, dtype=torch.int64, device=q.device)
    step = max(1, min(_ROWS, rows, budget // (4 * max(1, k.shape[0]))))
    tile = max(_LEAST_KEYS, budget // (step * heads * 4))
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        left, right = int(start[part].min()), int(end[part].max())
        if left >= right:
            continue
        q_part, weights_part = q[part].float(), weights[part].float()
        values = q_part.new_empty((q_part.shape[0], right - left))
        for key in range(left, right, tile):
            keys = slice(key, min(key + tile, right))
            tile_scores = scores(q_part, k[keys].float(), weights_part, scale)
            values[:, key - left : keys.stop - left] = tile_scores
        place = torch.arange(left, right, device=q.device)
        hidden = (place < start[part, None]) | (place >= end[part, None])
        if seen is not None:
            hidden |= ~seen[part, left:right]
        found = best(values, hidden, min(topk, right - left))
        out[part, : found.shape[1]] = torch.where(found >= 0, found + left, -1)
    return out


def best(values: Tensor, hidden: Tensor, topk: int) -> Tensor:
    """Return the columns of the `topk` best values that are not hidden, ascending, then -1.

    `values` is (S, T) float32, overwritten where `hidden`, (S, T) bool.
    """
    import torch

    if not bool(values.sum().isfinite()):  # something may be NaN or infinite
        columns = torch.arange(values.shape[1], device=values.device)
        order = ranked(values, columns).masked_fill_(hidden, _NO_KEY)
        order = order.topk(topk, dim=1).values
        found = (_LARGEST_ID - (order & 0xFFFFFFFF)).masked_fill_(order == _NO_KEY, _LARGEST_ID)
        found = found.sort(dim=1).values
        return found.masked_fill_(found == _LARGEST_ID, -1)
    values.masked_fill_(hidden, float("-inf"))
    least = values.topk(topk, dim=1, sorted=False).values.amin(1, keepdim=True)
    least.clamp_(min=torch.finfo(torch.float32).min)  # a row with fewer keys takes them all
    chosen = values >= least
    over = (chosen.sum(1) > topk).nonzero()[:, 0]
    if len(over):  # several keys score the least; the first of them are taken
        tied = values[over] == least[over]
        surplus = chosen[over].sum(1, keepdim=True) - topk
        keep = tied.cumsum(1) <= tied.sum(1, keepdim=True) - surplus
        chosen[over] &= ~tied | keep
    row, column = chosen.nonzero(as_tuple=True)
    count = chosen.sum(1)
    place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    found = torch.full((len(values), topk), -1, dtype=torch.int64, device=values.device)
    found[row, place] = column
    return found


def filled(ids: Tensor, seen: Tensor) -> Tensor:
    """Replace -1 by keys that the row does not see, distinct, in ascending order.

    `ids` is (S, K), -1 behind the last; `seen` (S, T) bool, T >= K. The model scatters the ids into
    a mask, where -1 is an error and an unseen key changes nothing.
    """
    import torch

    unseen = torch.argsort(seen.byte(), dim=1, stable=True)[:, : ids.shape[1]]
    kept = (ids >= 0).sum(1, keepdim=True)
    place = (torch.arange(ids.shape[1], device=ids.device) - kept).clamp_(min=0)
    return torch.where(ids >= 0, ids, unseen.gather(1, place))


def filled_span(ids: Tensor, first: Tensor, count: Tensor) -> Tensor:
    """Do what `filled` does for rows that see [first, first + count), without the mask."""
    import torch

    kept = (ids >= 0).sum(1, keepdim=True)
    place = torch.arange(ids.shape[1], device=ids.device) - kept
    unseen = torch.where(place < first[:, None], place, place + count[:, None])
    return torch.where(ids >= 0, ids, unseen)
