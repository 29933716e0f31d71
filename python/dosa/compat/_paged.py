# SPDX-License-Identifier: Apache-2.0
"""The decode calls of DeepGEMM over paged caches; `dosa.compat.deep_gemm` exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dosa import _device_decode
from dosa._decode import paged_gather, paged_topk
from dosa._errors import ArgumentError, ArgumentTypeError, UnsupportedError
from dosa._functions import scores
from dosa._libraries import on_device
from dosa._options import integer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dosa._decode import Witnesses

_SPLIT_KEYS = 256  # of a segment of DeepGEMM's schedule
_INT32_MAX = 2**31 - 1


def get_paged_mqa_logits_metadata(
    context_lens: Tensor, block_kv: int, num_sms: int, indices: None = None
) -> Tensor:
    """Return the schedule that DeepGEMM's Hopper kernel takes.

    The calls of this module need none and look at none; it is here for code that hands it around,
    and equal to DeepGEMM's.

    Parameters
    ----------
    context_lens : (B, next_n) int32
        The tokens that each query sees; the last of a request counts.
    block_kv : int
        Tokens per page, 64.
    num_sms : int
        Multiprocessors that share the work.
    indices : None
        Requests of different numbers of queries are not served, as on Hopper there.

    Returns
    -------
    (num_sms + 1, 2) int32
        Where each multiprocessor begins: a query (or pair of queries) and a segment of 256 keys.
    """
    import torch

    _refuse_indices(indices)
    if context_lens.dim() != 2 or context_lens.dtype != torch.int32:
        found = f"{context_lens.dtype} of shape {tuple(context_lens.shape)}"
        raise ArgumentTypeError.of("context_lens", found, "int32 of shape (B, next_n)")
    if block_kv != 64:
        raise ArgumentError.of("block_kv", str(block_kv), "64")
    num_sms = integer("num_sms", num_sms, 1, _INT32_MAX)
    batch, next_n = context_lens.shape
    atoms = (next_n + 1) // 2  # a pair of queries is read together
    last = context_lens[:, -1].long().clamp(min=0)
    segments = (last + _SPLIT_KEYS - 1) // _SPLIT_KEYS
    ends = segments.cumsum(0) * atoms
    total = ends[-1] if batch else torch.zeros((), dtype=torch.int64, device=last.device)
    sm = torch.arange(num_sms + 1, device=last.device)
    # The first multiprocessors have one segment less than the last.
    begin = sm * (total // num_sms) + (sm - (num_sms - total % num_sms)).clamp(min=0)
    request = torch.searchsorted(ends, begin, right=True)
    padded = torch.nn.functional.pad
    inside = begin - padded(ends, (1, 0))[request]
    each = padded(segments, (0, 1))[request].clamp(min=1)
    none = request >= batch
    query = torch.where(none, batch * atoms, request * atoms + inside // each)
    segment = torch.where(none, 0, inside % each)
    query[-1], segment[-1] = batch * atoms, 0
    return torch.stack((query, segment), 1).int()


def fp8_paged_mqa_logits(
    q: Tensor,
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    schedule_meta: Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
    indices: None = None,
) -> Tensor:
    """Return the logits of every query of a decode step and every token that it sees.

    Parameters
    ----------
    q : (B, next_n, H, D) float8_e4m3fn tensor, contiguous
        Query heads; all tensors are on the host, or all on one CUDA device.
    kv_cache : (pages, page_size, 1, D + 4) uint8
        Pages: first the keys of all their tokens, then the scales.
    weights : (B * next_n, H) float32
        Head weights with all other scales folded in.
    context_lens : (B, next_n) or (B,) int32
        The tokens that each query sees, or those of a request's last query.
    block_table : (B, blocks) int32
        The page of each page_size tokens.
    schedule_meta : ignored
        There is no schedule to hand over.
    max_context_len : int
        Columns of the result; longer lengths count as this.
    clean_logits : bool
        Promise -Inf behind the length of a row. It is -Inf there in any case.
    indices : None
        Requests of different numbers of queries are not served.

    Returns
    -------
    (B * next_n, max_context_len) float32
        Contiguous (DeepGEMM's rows are padded).

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError, dosa.UnsupportedError
        As for `dosa.paged_topk`.
    """
    import torch

    _refuse_indices(indices)
    width = integer("max_context_len", max_context_len, 0, _INT32_MAX)
    arrays = (q, kv_cache, weights, context_lens, block_table)
    if not on_device(q):
        return _host_logits(*arrays, width)
    rows = q.shape[0] * q.shape[1] if q.dim() == 4 else 0
    out = torch.full((rows, width), -torch.inf, device=q.device)
    page_size = kv_cache.shape[1] if kv_cache.dim() in (3, 4) else 64
    _device_decode.scores(arrays, page_size, out)
    return out


def _host_logits(
    q: Tensor, kv_cache: Tensor, weights: Tensor, lens: Tensor, table: Tensor, width: int
) -> Tensor:
    """Gather the keys of one request after the other and score them."""
    import torch

    batch, next_n, heads, dim = q.shape
    if weights.shape != (batch * next_n, heads):
        expected = f"({batch * next_n}, {heads})"
        raise ArgumentError.of("weights", f"shape {tuple(weights.shape)}", expected)
    if lens.dim() == 1:
        lens = lens[:, None] - torch.arange(next_n - 1, -1, -1, dtype=torch.int32)
    if lens.shape != (batch, next_n) or lens.dtype != torch.int32:
        found = f"{lens.dtype} of shape {tuple(lens.shape)}"
        raise ArgumentError.of("context_lens", found, f"int32 of shape ({batch}, {next_n})")
    seen = lens.clamp(0, width)
    out = torch.full((batch * next_n, width), -torch.inf)
    for request in range(batch):
        total = int(seen[request].max()) if next_n else 0
        if total == 0:
            continue
        ends = torch.tensor([0, total], dtype=torch.int32)
        k, scale = paged_gather(kv_cache, table[request : request + 1], ends, head_dim=dim)
        rows = slice(request * next_n, (request + 1) * next_n)
        end = seen[request].contiguous()
        start = torch.zeros_like(end)
        out[rows, :total] = scores(q[request], k, scale, weights[rows], start, end)
    return out


def fp8_fp4_paged_mqa_logits(
    q: tuple[Tensor, Tensor | None],
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    schedule_meta: Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
    logits_dtype: torch.dtype | None = None,
    indices: None = None,
) -> Tensor:
    """Return the logits of a decode step, by DeepGEMM's newer signature.

    Parameters
    ----------
    q : ((B, next_n, H, D) float8_e4m3fn, None)
        Queries without scale factors; FP4 queries, which have them, are refused.
    logits_dtype : torch.float32 (the default) or torch.bfloat16
        The logits are rounded to bfloat16 once they are computed, to nearest even.
    kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, clean_logits,
    indices
        As for `fp8_paged_mqa_logits`, as are the results and errors.
    """
    from dosa.compat.deep_gemm import logits_type, without_scales

    dtype = logits_type(logits_dtype)
    arrays = (without_scales(q), kv_cache, weights, context_lens, block_table, schedule_meta)
    return fp8_paged_mqa_logits(*arrays, max_context_len, clean_logits, indices).to(dtype)


def fp8_paged_mqa_topk(
    q: Tensor,
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    schedule_meta: Tensor | None,
    max_context_len: int,
    k: int = 2048,
    index_form: Literal["relative", "slot"] = "relative",
    witnesses: Witnesses | None = None,
) -> Tensor:
    """Return the tokens of the k highest logits of every query, without the logits.

    Parameters
    ----------
    q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len
        As for `fp8_paged_mqa_logits`.
    k : int
        Ids per query, 1 to 8192 (4096 on a device).
    index_form : {"relative", "slot"}
        Positions in the request, or slots of the cache, ``block_table[b, p // page_size] *
        page_size + p % page_size``.
    witnesses : dosa.Witnesses, optional
        What the sequences remember from step to step.

    Returns
    -------
    (B * next_n, k) int32
        min(k, length) ids in ascending order of position, then -1.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        As for `dosa.paged_topk`.
    """
    arrays = (q, kv_cache, weights, context_lens, block_table)
    options: Any = {"index_form": index_form, "max_context": max_context_len}
    indices: Tensor = paged_topk(*arrays, k, witnesses=witnesses, **options).indices
    return indices


def _refuse_indices(indices: object) -> None:
    if indices is not None:
        found = type(indices).__name__
        raise UnsupportedError(f"indices: found {found}, expected None: next_n queries each")
