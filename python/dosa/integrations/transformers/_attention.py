# SPDX-License-Identifier: Apache-2.0
"""Attention over selected keys by blocks of queries, without an (S, T) mask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from dosa.integrations.transformers._masks import LazyMask

if TYPE_CHECKING:
    from torch import Tensor

NAME = "dosa"
_LEAST_ROWS = 16


def register() -> None:
    """Make the attention known to transformers, under the name "dosa"."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    from dosa.integrations.transformers._masks import lazy_mask

    AttentionInterface.register(NAME, sparse_attention)
    AttentionMaskInterface.register(NAME, lazy_mask)


def sparse_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: LazyMask | Tensor,
    dropout: float = 0.0,
    scaling: float | None = None,
    indices: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Return what the `sdpa` attention of transformers returns for the same selection.

    Parameters
    ----------
    module : torch.nn.Module
        The attention layer that calls.
    query, key, value : (B, H, S, D), (B, H, T, D), (B, H, T, Dv)
        Expanded states.
    attention_mask : LazyMask, or (B, 1, S, T) tensor
        What a query may see.
    indices : (B, S, K) int32
        What it selected.

    Returns
    -------
    (B, S, H, Dv) tensor, None
        Each block of queries is given to the `sdpa` function with the mask of the block, cut behind
        the last key that the block sees.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    assert indices is not None, "the model passes the selection to attention functions"
    attend: Callable[..., tuple[Tensor, None]] = sdpa_attention_forward
    options = {"dropout": dropout, "scaling": scaling, **kwargs}
    batch, heads, rows, _ = query.shape
    keys = key.shape[2]
    if not isinstance(attention_mask, LazyMask):
        mask = _with_selection(attention_mask, indices, keys, query)
        return attend(module, query, key, value, mask, **options)
    if module.training:
        mask = _selected(attention_mask.tensor(), indices, keys)
        return attend(module, query, key, value, mask, **options)
    out = query.new_empty((batch, rows, heads, value.shape[-1]))
    step = _block_rows(query, value, keys, module._dosa_patch.budget(query.device.type))
    ends = attention_mask.spans().end
    for begin in range(0, rows, step):
        part = slice(begin, min(begin + step, rows))
        last = max(1, int(ends[:, part].max()))
        seen = attention_mask.rows(part.start, part.stop, last).unsqueeze(1)
        mask = _selected(seen, indices[:, part], keys)
        block = query[:, :, part], key[:, :, :last], value[:, :, :last]
        with _kernels(query):
            out[:, part] = attend(module, *block, mask, **options)[0]
    return out if torch.is_grad_enabled() else out.contiguous(), None


def _kernels(query: Tensor) -> AbstractContextManager[object]:
    """Return the kernels for blocks: not cuDNN's.

    Those are compiled for every new shape, and every block has one.
    """
    if not query.is_cuda:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels: AbstractContextManager[object] = sdpa_kernel(
        [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )
    return kernels


def _block_rows(query: Tensor, value: Tensor, keys: int, budget: int) -> int:
    """Return queries per block: masks, and scores where torch computes them all, fit the budget."""
    batch, heads, rows, dim = query.shape
    per_key = 2 + 2 * query.element_size()  # boolean masks; the same as numbers
    if dim != value.shape[-1]:  # no fused kernel on the host: scores of all heads in fp32, twice
        per_key += 8 * heads
    fit: int = budget // (batch * keys * per_key)
    return max(_LEAST_ROWS, min(int(rows), fit))


def _selected(seen: Tensor, indices: Tensor, keys: int) -> Tensor:
    """Return the boolean mask (B, 1, S, columns of `seen`) of keys that are seen and selected."""
    import torch

    chosen = torch.zeros((*indices.shape[:2], keys), dtype=torch.bool, device=seen.device)
    chosen.scatter_(-1, indices.long(), True)
    return chosen.unsqueeze(1)[..., : seen.shape[-1]] & seen


def _with_selection(mask: Tensor, indices: Tensor, keys: int, query: Tensor) -> Tensor:
    """Return a whole mask, boolean or additive, without the keys that are not selected."""
    import torch

    if mask.dtype == torch.bool:
        return _selected(mask, indices, keys)
    everything = torch.ones((), dtype=torch.bool, device=mask.device).expand(1, 1, 1, keys)
    chosen = _selected(everything, indices, keys)
    return mask.masked_fill(~chosen, torch.finfo(query.dtype).min)
