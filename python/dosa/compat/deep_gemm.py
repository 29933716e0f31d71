# SPDX-License-Identifier: Apache-2.0
"""The indexer calls of DeepGEMM.

Arguments are those of `deep_gemm` (commit 54e2261, June 2026), so that a caller changes one import.
`fp8_mqa_topk` and `fp8_paged_mqa_topk` take the same arguments and k, and return the ids without
ever holding the logits: this is what to migrate to.

On a CUDA device the logits are those of the score model `sm90`: bit for bit what DeepGEMM's kernel
for Hopper computes. On the host they are those of `ieee` (docs/numerics.md): every dot product is
exact and rounded once, all later operations are the same ones in the same order. Where all sums are
exact in fp32 both are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._functions import scores, topk
from dosa._libraries import on_device
from dosa.compat._paged import (
    fp8_fp4_paged_mqa_logits,
    fp8_paged_mqa_logits,
    fp8_paged_mqa_topk,
    get_paged_mqa_logits_metadata,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "fp8_fp4_mqa_logits",
    "fp8_fp4_paged_mqa_logits",
    "fp8_mqa_logits",
    "fp8_mqa_topk",
    "fp8_paged_mqa_logits",
    "fp8_paged_mqa_topk",
    "get_paged_mqa_logits_metadata",
]

# Cells that are compressed together: their places are 64-bit numbers.
_CELLS = 1 << 26


def fp8_mqa_logits(
    q: Tensor,
    kv: tuple[Tensor, Tensor],
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
) -> Tensor:
    """Return the logits of every query and key.

    Parameters
    ----------
    q : (Sq, H, D) float8_e4m3fn tensor
        Query heads; all tensors are on the host, or all on one CUDA device.
    kv : ((Skv, D) float8_e4m3fn, (Skv,) float32)
        Keys and their scales.
    weights : (Sq, H) float32
        Head weights with all other scales folded in.
    cu_seq_len_k_start, cu_seq_len_k_end : (Sq,) int32
        The window of keys of each query, clamped to [0, Skv).
    clean_logits : bool
        Promise -Inf outside the windows. It is -Inf there in any case; DeepGEMM leaves those cells
        as they are where this is False, so do not rely on it.
    max_seqlen_k : int
        Above 0: compressed logits, the key `i` of a row in column `i - cu_seq_len_k_start`. Needs
        ``clean_logits=False``, as in DeepGEMM.

    Returns
    -------
    (Sq, Skv) float32 tensor, or (Sq, max_seqlen_k) where that is above 0
        Contiguous (DeepGEMM's rows are padded). Compressed rows end with -Inf.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        As for `dosa.topk`; on the host also where a window is longer than `max_seqlen_k`. On a
        device, where nobody looks at windows, its last keys are left out.
    """
    keys, scale = _pair("kv", kv, "a pair (keys, scales)")
    _check_windows(cu_seq_len_k_start, cu_seq_len_k_end)
    if max_seqlen_k < 0:
        raise ArgumentError.of("max_seqlen_k", str(max_seqlen_k), "0 or more")
    if max_seqlen_k > 0 and clean_logits:
        raise ArgumentError.of("clean_logits", "True", "False where max_seqlen_k is above 0")
    logits: Tensor = scores(q, keys, scale, weights, cu_seq_len_k_start, cu_seq_len_k_end)
    if max_seqlen_k == 0:
        return logits
    return _compress(logits, cu_seq_len_k_start, cu_seq_len_k_end, max_seqlen_k)


def fp8_fp4_mqa_logits(
    q: tuple[Tensor, Tensor | None],
    kv: tuple[Tensor, Tensor],
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
    logits_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the logits of every query and key, by DeepGEMM's newer signature.

    Parameters
    ----------
    q : ((Sq, H, D) float8_e4m3fn, None)
        Queries without scale factors; FP4 queries, which have them, are refused.
    logits_dtype : torch.float32 (the default) or torch.bfloat16
        The logits are rounded to bfloat16 once they are computed, to nearest even.
    kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits, max_seqlen_k
        As for `fp8_mqa_logits`, as are the results and errors.
    """
    queries, dtype = without_scales(q), logits_type(logits_dtype)
    windows = (cu_seq_len_k_start, cu_seq_len_k_end)
    return fp8_mqa_logits(queries, kv, weights, *windows, clean_logits, max_seqlen_k).to(dtype)


def fp8_mqa_topk(
    q: Tensor,
    kv: tuple[Tensor, Tensor],
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    k: int = 2048,
    index_form: Literal["absolute", "relative"] = "absolute",
) -> Tensor:
    """Return the ids of the k highest logits of every query, without the logits.

    Parameters
    ----------
    q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end
        As for `fp8_mqa_logits`.
    k : int
        Ids per query, 1 to 8192 (4096 on a device); may exceed Skv.
    index_form : {"absolute", "relative"}
        Key ids, or ids minus the start of the row's window, as serving engines want them.

    Returns
    -------
    (Sq, k) int32 tensor
        min(k, window length) ids in ascending order, then -1. Equal logits: the lower id first.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        As for `dosa.topk`.
    """
    keys, scale = _pair("kv", kv, "a pair (keys, scales)")
    _check_windows(cu_seq_len_k_start, cu_seq_len_k_end)
    inputs = (q, keys, scale, weights, cu_seq_len_k_start, cu_seq_len_k_end)
    indices: Tensor = topk(*inputs, topk=k, index_form=index_form).indices
    return indices


def _pair(name: str, pair: object, expected: str) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        size = f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
        raise ArgumentTypeError.of(name, f"{type(pair).__name__}{size}", expected)
    return pair[0], pair[1]


def logits_type(dtype: torch.dtype | None) -> torch.dtype:
    """Return the dtype that logits are asked for in."""
    import torch

    if dtype not in (None, torch.float32, torch.bfloat16):
        raise ArgumentTypeError.of("logits_dtype", str(dtype), "torch.float32 or torch.bfloat16")
    return torch.float32 if dtype is None else dtype


def without_scales(q: object) -> Any:
    """Return the queries of a pair, whose scale factors have to be None."""
    queries, factors = _pair("q", q, "a pair (queries, None)")
    if factors is not None:
        found = f"scale factors ({type(factors).__name__})"
        raise ArgumentError.of("q", found, "None: FP8 queries have none, and FP4 is not served")
    return queries


def _check_windows(start: object, end: object) -> None:
    """Refuse None, which elsewhere stands for a window of all keys."""
    for name, value in (("cu_seq_len_k_start", start), ("cu_seq_len_k_end", end)):
        if value is None:
            raise ArgumentTypeError.of(name, "None", "an int32 tensor")


def _compress(logits: Tensor, start: Tensor, end: Tensor, width: int) -> Tensor:
    import torch

    rows, num_keys = logits.shape
    first = start.long().clamp(0, num_keys)
    length = (end.long().clamp(0, num_keys) - first).clamp(min=0)
    if rows and not on_device(logits) and int(length.max()) > width:
        longest = int(length.argmax())
        found = f"{width}, and a window of {int(length[longest])} keys in row {longest}"
        raise ArgumentError.of("max_seqlen_k", found, "no longer window")
    out = logits.new_full((rows, width), float("-inf"))
    if num_keys == 0:
        return out
    column = torch.arange(width, device=logits.device)
    step = max(1, _CELLS // width)
    for begin in range(0, rows, step):
        some = slice(begin, begin + step)
        source = (first[some, None] + column).clamp_(max=num_keys - 1)
        out[some] = logits[some].gather(1, source)
        out[some].masked_fill_(column >= length[some, None], float("-inf"))
    return out
