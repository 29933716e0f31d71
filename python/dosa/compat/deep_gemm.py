# SPDX-License-Identifier: Apache-2.0
"""The prefill indexer calls of DeepGEMM, on the host.

Arguments are those of `deep_gemm.fp8_mqa_logits` (DeepGEMM at commit 54e2261, June 2026), so that a
caller changes one import. `fp8_mqa_topk` takes the same arguments and k, and returns the ids
without ever holding the logits: this is what to migrate to.

The logits are those of the score model `ieee` (docs/numerics.md): every dot product is exact and
rounded once, where Hopper's tensor cores round differently; all later operations are the same ones
in the same order. So they are *not* bit-equal to the logits of a GPU. Where all sums are exact in
fp32 both are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._functions import scores, topk

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["fp8_mqa_logits", "fp8_mqa_topk"]


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
    q : (Sq, H, D) float8_e4m3fn tensor on the host
        Query heads.
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
        As for `dosa.topk`; also where a window is longer than `max_seqlen_k`.
    """
    keys, scale = _pair(kv)
    _check_windows(cu_seq_len_k_start, cu_seq_len_k_end)
    if max_seqlen_k < 0:
        raise ArgumentError.of("max_seqlen_k", str(max_seqlen_k), "0 or more")
    if max_seqlen_k > 0 and clean_logits:
        raise ArgumentError.of("clean_logits", "True", "False where max_seqlen_k is above 0")
    logits: Tensor = scores(q, keys, scale, weights, cu_seq_len_k_start, cu_seq_len_k_end)
    if max_seqlen_k == 0:
        return logits
    return _compress(logits, cu_seq_len_k_start, cu_seq_len_k_end, max_seqlen_k)


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
        Ids per query, 1 to 8192; may exceed Skv.
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
    keys, scale = _pair(kv)
    _check_windows(cu_seq_len_k_start, cu_seq_len_k_end)
    inputs = (q, keys, scale, weights, cu_seq_len_k_start, cu_seq_len_k_end)
    indices: Tensor = topk(*inputs, topk=k, index_form=index_form).indices
    return indices


def _pair(kv: object) -> tuple[Tensor, Tensor]:
    if not isinstance(kv, (tuple, list)) or len(kv) != 2:
        found = f"{type(kv).__name__}" + (f" of {len(kv)}" if isinstance(kv, (tuple, list)) else "")
        raise ArgumentTypeError.of("kv", found, "a pair (keys, scales)")
    return kv[0], kv[1]


def _check_windows(start: object, end: object) -> None:
    """Refuse None, which elsewhere stands for a window of all keys."""
    for name, value in (("cu_seq_len_k_start", start), ("cu_seq_len_k_end", end)):
        if value is None:
            raise ArgumentTypeError.of(name, "None", "an int32 tensor")


def _compress(logits: Tensor, start: Tensor, end: Tensor, width: int) -> Tensor:
    import torch

    num_keys = logits.shape[1]
    first = start.long().clamp(0, num_keys)
    length = (end.long().clamp(0, num_keys) - first).clamp(min=0)
    if length.numel() and int(length.max()) > width:
        longest = int(length.argmax())
        found = f"{width}, and a window of {int(length[longest])} keys in row {longest}"
        raise ArgumentError.of("max_seqlen_k", found, "no longer window")
    column = torch.arange(width)
    source = (first[:, None] + column).clamp(max=max(num_keys - 1, 0))
    if num_keys == 0:
        return logits.new_full((logits.shape[0], width), float("-inf"))
    values = logits.gather(1, source)
    return values.masked_fill_(column >= length[:, None], float("-inf"))
