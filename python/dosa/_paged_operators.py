# SPDX-License-Identifier: Apache-2.0
"""Decode steps and their caches as operators of PyTorch; `dosa.torch` registers them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dosa._decode import Witnesses
from dosa._decode import paged_gather as _gather
from dosa._decode import paged_insert as _insert
from dosa._decode import paged_topk as _topk
from dosa._errors import ArgumentError

_STEP = (
    "Tensor q, Tensor kv_cache, Tensor weights, Tensor context_lens, Tensor block_table, "
    "int topk=2048, Tensor(a!)? witnesses=None, Tensor? witness_index=None, "
    "Tensor? index_offset=None, Tensor? slot_table=None"
)
# Without `mode`: PyTorch cannot trace an operator that changes an input and has such an argument.
_OPTIONS = (
    "str threshold='rising', str order='id', str index_form='absolute', "
    "int? page_size=None, int slot_page_size=1, int max_context=2147483647, int forced_first=0, "
    "int forced_last=0, int threads=0, int? workspace_mib=None"
)


def _paged_topk(
    q: Tensor,
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    topk: int = 2048,
    witnesses: Tensor | None = None,
    witness_index: Tensor | None = None,
    index_offset: Tensor | None = None,
    slot_table: Tensor | None = None,
    **options: Any,
) -> Tensor:
    given = {name: value for name, value in options.items() if value is not None}
    indices: Tensor = _topk(
        *(q.detach(), kv_cache, weights.detach(), context_lens, block_table),
        topk,
        witnesses=None if witnesses is None else Witnesses.of(witnesses, topk),
        witness_index=witness_index,
        index_offset=index_offset,
        slot_table=slot_table,
        **given,
    ).indices
    return indices


def _paged_topk_fake(
    q: Tensor,
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    topk: int = 2048,
    *_: Tensor | None,
    **__: Any,
) -> Tensor:
    if q.dim() != 4:
        raise ArgumentError.of("q", f"{q.dim()} dimensions", "4")
    return q.new_empty((q.shape[0] * q.shape[1], topk), dtype=torch.int32)


def _paged_insert(
    kv_cache: Tensor,
    k: Tensor,
    slot_mapping: Tensor,
    *,
    scale_format: str = "fp32",
    page_size: int | None = None,
    threads: int = 0,
) -> None:
    options: Any = {"scale_format": scale_format, "page_size": page_size, "threads": threads}
    _insert(kv_cache, k.detach(), slot_mapping, **options)


def _paged_insert_fake(*_: Tensor, **__: Any) -> None:
    return None


def _paged_gather(
    kv_cache: Tensor,
    block_table: Tensor,
    cu_seq_lens: Tensor,
    num_keys: int,
    *,
    head_dim: int = 128,
    page_size: int | None = None,
    threads: int = 0,
) -> tuple[Tensor, Tensor]:
    options: Any = {"head_dim": head_dim, "page_size": page_size, "threads": threads}
    k, k_scale = _gather(kv_cache, block_table, cu_seq_lens, num_keys=num_keys, **options)
    return k, k_scale


def _paged_gather_fake(
    kv_cache: Tensor,
    block_table: Tensor,
    cu_seq_lens: Tensor,
    num_keys: int,
    *,
    head_dim: int = 128,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    k = kv_cache.new_empty((num_keys, head_dim), dtype=torch.float8_e4m3fn)
    return k, kv_cache.new_empty((num_keys,), dtype=torch.float32)


OPERATORS: tuple[tuple[str, str, Any, Any], ...] = (
    ("paged_topk", f"({_STEP}, *, {_OPTIONS}) -> Tensor", _paged_topk, _paged_topk_fake),
    (
        "paged_insert",
        "(Tensor(a!) kv_cache, Tensor k, Tensor slot_mapping, *, str scale_format='fp32', "
        "int? page_size=None, int threads=0) -> ()",
        _paged_insert,
        _paged_insert_fake,
    ),
    (
        "paged_gather",
        "(Tensor kv_cache, Tensor block_table, Tensor cu_seq_lens, SymInt num_keys, *, "
        "int head_dim=128, int? page_size=None, int threads=0) -> (Tensor, Tensor)",
        _paged_gather,
        _paged_gather_fake,
    ),
)
