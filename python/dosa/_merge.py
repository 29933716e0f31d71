# SPDX-License-Identifier: Apache-2.0
"""The exact Top-K of lists of scored keys."""

from __future__ import annotations

from typing import Any

from dosa import _core, _device
from dosa._arrays import SupportsDLPack, empty, is_tensor, view
from dosa._errors import ArgumentError
from dosa._indexer import MAX_TOPK
from dosa._libraries import on_device
from dosa._options import Order, int32, word


def merge_topk(
    scores: SupportsDLPack,
    ids: SupportsDLPack,
    topk: int = 2048,
    *,
    order: Order = "id",
    threads: int = 0,
) -> tuple[Any, Any]:
    """Return the K best keys of every row of L lists of scored keys.

    Where list l holds the K best keys of its part of a context, with their scores, the result is
    that of `dosa.topk` on the whole context: the same bytes.

    Parameters
    ----------
    scores : (L, Q, C) float32, contiguous
        Scores, in any order.
    ids : (L, Q, C) int32, contiguous
        Key ids of the whole context; those from the first negative one of a row on are not looked
        at. A key that occurs more than once in a row counts once, with its best score.
    topk : int
        K, 1 to 8192 (4096 on a device, of at most 256 lists); may exceed what the lists hold.
    order : {"id", "score"}
        Ascending ids, or descending scores with ties by ascending id.
    threads : int
        OpenMP threads; 0 is the runtime's default.

    Returns
    -------
    ids : (Q, K) int32
        -1 behind the last.
    scores : (Q, K) float32
        In the order of the ids, NaN behind the last. Arrays of the library and on the device of
        `scores`; on a device work is enqueued, nothing waits, and a CUDA graph can be captured.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        As for `dosa.topk`.

    Examples
    --------
    >>> import numpy as np, dosa
    >>> scores = np.array([[[5, 3]], [[4, 9]]], np.float32)
    >>> ids = np.array([[[0, 2]], [[3, -1]]], np.int32)
    >>> dosa.merge_topk(scores, ids, topk=2)[0]
    array([[0, 3]], dtype=int32)
    """
    kept = int32("topk", topk)
    by = word("order", order, ("id", "score"))
    if on_device(scores):
        return _device.merge(scores, ids, kept, by)
    lists = _core.Lists(view("scores", scores, "float32"), view("ids", ids, "int32"))
    if not 1 <= kept <= MAX_TOPK:  # before the outputs are allocated
        raise ArgumentError.of("topk", str(kept), f"1 to {MAX_TOPK}")
    like = scores if is_tensor(scores) else None
    indices = empty((lists.num_rows, kept), "int32", like)
    values = empty((lists.num_rows, kept), "float32", like)
    _core.merge(lists, kept, by, int32("threads", threads), indices, values)
    return indices, values
