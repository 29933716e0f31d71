# SPDX-License-Identifier: Apache-2.0
"""The functions of the package: an Indexer for one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

from dosa._arrays import SupportsDLPack
from dosa._indexer import CallOptions, Indexer
from dosa._options import Options
from dosa._results import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dosa._counts import Counts
    from dosa._reports import Certificate, DeviceVerification, Verification


@overload
def topk(
    q: NDArray[Any],
    k: SupportsDLPack,
    k_scale: SupportsDLPack,
    weights: SupportsDLPack,
    k_start: SupportsDLPack | None = None,
    k_end: SupportsDLPack | None = None,
    topk: int = 2048,
    **options: Unpack[CallOptions],
) -> TopK[NDArray[Any]]: ...


@overload
def topk(
    q: SupportsDLPack,
    k: SupportsDLPack,
    k_scale: SupportsDLPack,
    weights: SupportsDLPack,
    k_start: SupportsDLPack | None = None,
    k_end: SupportsDLPack | None = None,
    topk: int = 2048,
    **options: Unpack[CallOptions],
) -> TopK[Any]: ...


def topk(
    q: SupportsDLPack,
    k: SupportsDLPack,
    k_scale: SupportsDLPack,
    weights: SupportsDLPack,
    k_start: SupportsDLPack | None = None,
    k_end: SupportsDLPack | None = None,
    topk: int = 2048,
    *,
    scores: bool = False,
    counts: Counts | None = None,
    index_offset: SupportsDLPack | None = None,
    page_table: SupportsDLPack | None = None,
    page_size: int = 1,
    out: object = None,
    **options: Unpack[Options],
) -> TopK[Any]:
    """Return the K best keys of every query, exactly.

    The score of key i for query t is ``k_scale[i] * sum_h weights[t,h] * max(0, q[t,h] . k[i])`` in
    the score model `ieee` (docs/numerics.md) on the host, `sm90` on a CUDA device. Higher scores
    first; equal scores, lower ids first; NaN last. No option but `score_model`, `index_form`, the
    forced keys and `order` changes what is returned.

    Parameters
    ----------
    q : (Q, H, D) float8_e4m3fn, or uint8 holding its codes
        Query heads; (H, D) contiguous, rows may be strided. H is 1 to 128, D a multiple of 16 up
        to 256 (32, 64 or 128 on a device). All arrays are on the host, or all on the device of q.
    k : (N, D) float8_e4m3fn or uint8
        Keys; rows may be strided.
    k_scale : (N,) float32, contiguous
        One scale per key. Keys with a zero, negative, subnormal or non-finite scale are scored and
        never pruned.
    weights : (Q, H) float32
        Signed head weights, with query scale, D^-1/2 and H^-1/2 folded in; rows may be strided.
    k_start, k_end : (Q,) int32, contiguous, optional
        The window [k_start, k_end) of keys that a query sees, clamped to [0, N]; an empty or
        inverted window gives a row of -1. Default: all keys.
    topk : int
        K, 1 to 8192 (4096 on a device); may exceed N.
    scores : bool
        Return the scores too; forced keys score +Inf.
    counts : Counts, optional
        Takes what the call counts: the way to know it of a call on a device.
    out : (Q, K) int32, or a pair of it and (Q, K) float32, optional
        Arrays of the caller's for ids and scores. They share memory with no other array.
    index_offset : (Q,) int32, contiguous
        For ``index_form="offset"``.
    page_table : (pages,) or (Q, pages) int32
        For ``index_form="slot"``: the page of each `page_size` positions of a row's window.
    page_size : int
        Positions per page.
    **options
        mode : {"auto", "base", "full", "screen", "dosa"}
            Same answer, different work: auto chooses by shape and by a sample; base scores all and
            selects; full scores all and keeps what reaches the threshold; screen and dosa score
            only keys whose bound reaches it.
        threshold : {"rising", "fixed"}
            The K-th best score so far, or the one after the seeds.
        order : {"id", "score"}
            Ascending ids, or descending scores with ties by ascending id.
        index_form : {"absolute", "relative", "offset", "slot"}
            Key id; id - k_start; id - k_start + index_offset; slot
            ``table[p // page_size] * page_size + p % page_size`` of p = id - k_start.
        forced_first, forced_last : int, default 0
            The first and last keys of a window that are always selected.
        heads : int, default 0
            Retained heads r; 0 chooses for each group of rows.
        threads : int, default 0
            OpenMP threads; 0 is the runtime's default.
        workspace_mib : int, default 64, on a device 2048
            Most memory of the workspace in MiB, at least 16.
        progress : function (rows_done, rows_total), optional
            Called now and then, from one thread at a time; what it raises is raised when the call
            has ended.
        score_model : {"default", "ieee", "sm90", "mma_f16", "mma_fp8"}
            How dot products are rounded, for ids that stay the same from card to card: "ieee" is
            the only one of the host, docs/kernels.md says which a card has.
        retain, projection, allowance, allowance_groups, aggregate, statistics
            Ablations of the certificate, named as in dosa.h.

    Returns
    -------
    TopK
        indices (Q, K) int32, scores (Q, K) float32 or None, stats, rows. Arrays are of the library
        and on the device of `q`; on a device stats and rows are None: `counts` has them.

    Raises
    ------
    dosa.ArgumentTypeError
        A wrong type or dtype (a TypeError).
    dosa.ArgumentError
        A wrong shape, stride, device, or value, or memory that was freed (a ValueError). Both name
        the argument, what was found and what is expected, before any work.
    dosa.UnsupportedError
        What a device, or a package without its engine, does not have.
    dosa.InternalError, MemoryError
        A failure that no argument explains; no memory for the results or the workspace.

    Notes
    -----
    Nothing is copied. Inputs must not change during the call; other Python threads run meanwhile,
    as the interpreter lock is released. On a device the call enqueues work on the current stream of
    the library of `q` and returns (docs/python.md). The selection is not differentiable: tensors
    that require grad are refused, pass ``x.detach()``.

    Method: *DoSA: Dots Sparse Attention*, arXiv 2610.13990.

    Examples
    --------
    >>> import numpy as np, dosa
    >>> q = np.zeros((1, 1, 16), np.uint8)
    >>> q[..., 0] = 0x38  # e4m3 code of 1.0
    >>> k = np.broadcast_to(q[0], (4, 16)).copy()  # every dot product is 1
    >>> k_scale = np.array([3, 9, 1, 9], np.float32)
    >>> dosa.topk(q, k, k_scale, np.ones((1, 1), np.float32), topk=3, order="score").indices
    array([[1, 3, 0]], dtype=int32)
    """
    return Indexer(**options).topk(
        q,
        k,
        k_scale,
        weights,
        k_start,
        k_end,
        topk,
        scores=scores,
        counts=counts,
        index_offset=index_offset,
        page_table=page_table,
        page_size=page_size,
        out=out,
    )


def scores(
    q: SupportsDLPack,
    k: SupportsDLPack,
    k_scale: SupportsDLPack,
    weights: SupportsDLPack,
    k_start: SupportsDLPack | None = None,
    k_end: SupportsDLPack | None = None,
    *,
    rows: tuple[int, int] | None = None,
    **options: Unpack[Options],
) -> Any:
    """Return the score of every visible key, in the score model of where `q` lies.

    Parameters
    ----------
    q, k, k_scale, weights, k_start, k_end
        As for `dosa.topk`.
    rows : (begin, end), optional
        The rows that are scored. Default: all.
    **options
        As for `dosa.topk`; `threads` and `workspace_mib` matter.

    Returns
    -------
    (end - begin, N) float32
        -Inf outside a row's window. An array of the library and on the device of `q`.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError, MemoryError
        As for `dosa.topk`.
    """
    return Indexer(**options).scores(q, k, k_scale, weights, k_start, k_end, rows=rows)


def verify(
    q: SupportsDLPack,
    k: SupportsDLPack,
    k_scale: SupportsDLPack,
    weights: SupportsDLPack,
    k_start: SupportsDLPack | None = None,
    k_end: SupportsDLPack | None = None,
    topk: int = 2048,
    **options: Unpack[Options],
) -> Verification | DeviceVerification:
    """Compare with every key scored, and audit every rejected key against its exact score.

    Takes much longer than `dosa.topk`: nothing is left out.

    Parameters
    ----------
    q, k, k_scale, weights, k_start, k_end, topk, **options
        As for `dosa.topk`.

    Returns
    -------
    Verification, or DeviceVerification where `q` is on a device
        The report of a run in which all was right. On a device every bound is compared, not only
        those that reject, in device memory of up to 4 GiB; the call waits.

    Raises
    ------
    dosa.CertificateError
        A bound lies below its score, or an answer differs. Its attribute `verification` is the
        report, with the witness. This is a bug of the library.
    dosa.ArgumentError, dosa.ArgumentTypeError, MemoryError
        As for `dosa.topk`.
    """
    return Indexer(**options).verify(q, k, k_scale, weights, k_start, k_end, topk)


def explain(
    q: SupportsDLPack,
    k: SupportsDLPack,
    k_scale: SupportsDLPack,
    weights: SupportsDLPack,
    k_start: SupportsDLPack | None = None,
    k_end: SupportsDLPack | None = None,
    topk: int = 2048,
    *,
    row: int,
    **options: Unpack[Options],
) -> Certificate:
    """Return the certificate that a screening call would make for one row, and its bounds.

    Parameters
    ----------
    q, k, k_scale, weights, k_start, k_end, topk, **options
        As for `dosa.topk`; `mode` has to be one that screens.
    row : int
        The query, 0 to Q - 1.

    Returns
    -------
    Certificate
        What each head is used for, the allowances, and the bound of every key.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError, MemoryError
        As for `dosa.topk`.
    """
    return Indexer(**options).explain(q, k, k_scale, weights, k_start, k_end, topk, row=row)
