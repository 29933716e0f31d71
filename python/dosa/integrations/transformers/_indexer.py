# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a DSA indexer of transformers with another selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dosa.integrations._engine import engine_problem
from dosa.integrations._fp8 import quantise
from dosa.integrations.transformers._masks import LazyMask, Mask, Spans, TensorMask
from dosa.integrations.transformers._select import filled, filled_span, native

if TYPE_CHECKING:
    from torch import Tensor

    from dosa.integrations.transformers._patch import Patch

MAX_HEADS, MAX_DIM, DIM_STEP, MAX_TOPK = 128, 256, 16, 8192
DEVICE_DIMS, DEVICE_MAX_TOPK = (32, 64, 128), 4096


class IndexerForward:
    """Stands in for the `forward` of one indexer.

    Projections, positions and cache are the model's own modules and functions; what differs is what
    happens to queries, keys and weights afterwards.
    """

    def __init__(self, module: Any, rotate: Any, patch: Patch) -> None:
        self._module = module
        self._rotate = rotate
        self._patch = patch

    def __call__(
        self,
        hidden_states: Tensor,
        q_resid: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Any,
        position_ids: Tensor | None = None,
        cache: Any = None,
        *,
        past_key_values: Any = None,
        **unknown: Any,
    ) -> Tensor:
        """Return (B, S, min(K, T)) int32 ids of keys, as the original does."""
        import torch

        module, patch = self._module, self._patch
        cache = cache if cache is not None else past_key_values
        mask, reason = _understood(module, hidden_states, attention_mask, unknown)
        if mask is None:
            patch.fallbacks[reason] += 1
            whole = attention_mask
            if isinstance(whole, LazyMask):
                whole = whole.tensor()[:, 0]
            # By position: the last argument has two names among the releases.
            arguments = (hidden_states, q_resid, position_embeddings, whole, position_ids, cache)
            original: Tensor = type(module).forward(module, *arguments, **unknown)
            return original
        with torch.no_grad():
            k = self._keys(hidden_states, position_embeddings)
            if cache is not None:
                k = cache.update_indexer(k, module.layer_idx)
            return self._select(hidden_states, q_resid, position_embeddings, k, mask)

    def _keys(self, hidden_states: Tensor, position: tuple[Tensor, Tensor]) -> Tensor:
        """Return the keys of new tokens, (B, S, D)."""
        module = self._module
        k = module.k_norm(module.wk(hidden_states)).unsqueeze(2)
        return self._positioned(k, position).squeeze(2)

    def _positioned(self, x: Tensor, position: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate the first coordinates of (B, S, H, D), those of the position."""
        import torch

        rotary = self._module.qk_rope_head_dim
        cos, sin = position
        head, rest = x[..., :rotary], x[..., rotary:]
        # The function rotates a pair of tensors; the second is one that costs nothing.
        head, _ = self._rotate(head, head[:, :, :0], cos, sin, unsqueeze_dim=2)
        return torch.cat((head, rest), -1)

    def _queries(self, q_resid: Tensor, position: tuple[Tensor, Tensor]) -> Tensor:
        """Return query heads, (B, S, H, D)."""
        module = self._module
        heads = module.wq_b(q_resid).unflatten(-1, (module.n_heads, module.head_dim))
        return self._positioned(heads, position)

    def _weights(self, hidden_states: Tensor) -> Tensor:
        """Return head weights with H^-1/2 folded in, (B, S, H) fp32."""
        projection = self._module.weights_proj
        weights: Tensor = projection(hidden_states.to(projection.weight.dtype)).float()
        return weights * self._module.n_heads**-0.5

    def _select(
        self,
        hidden_states: Tensor,
        q_resid: Tensor,
        position: tuple[Tensor, Tensor],
        k: Tensor,
        mask: Mask,
    ) -> Tensor:
        import torch

        batch, keys, _ = k.shape
        rows = hidden_states.shape[1]
        topk = min(self._module.index_topk, keys)
        if keys <= topk:  # whatever the scores are
            self._patch.calls["all keys"] += 1
            everything = torch.arange(keys, dtype=torch.int32, device=k.device)
            return everything.expand(batch, rows, keys).contiguous()
        out = torch.empty((batch, rows, topk), dtype=torch.int32, device=k.device)
        spans = mask.spans()
        sequences = [
            _Sequence(self._module, self._patch, k[b], mask, spans, b, topk) for b in range(batch)
        ]
        step = self._patch.rows
        for begin in range(0, rows, step):
            part = slice(begin, min(begin + step, rows))
            cos, sin = (angle[:, part] for angle in position)
            queries = self._queries(q_resid[:, part], (cos, sin))
            weights = self._weights(hidden_states[:, part])
            for b, sequence in enumerate(sequences):
                out[b, part] = sequence.select(queries[b], weights[b], part)
        return out


class _Sequence:
    """The keys of one sequence, and what its queries see of them."""

    def __init__(
        self,
        module: Any,
        patch: Patch,
        k: Tensor,
        mask: Mask,
        spans: Spans,
        index: int,
        topk: int,
    ) -> None:
        import torch

        self._module, self._patch, self._mask, self._index = module, patch, mask, index
        self._topk = topk
        self._first, self._end = spans.first[index], spans.end[index]
        self._count = spans.count[index]
        none = self._count == 0
        self._whole = bool((none | (self._end - self._first == self._count)).all())
        # Keys that no query sees are left out; what remains of a row's keys is mostly a window.
        seen = spans.seen[index]
        self._ids = seen.nonzero()[:, 0]
        rank = torch.cat((seen.new_zeros(1, dtype=torch.int64), seen.cumsum(0)))
        self._start = rank[self._first].masked_fill_(none, 0)
        self._stop = rank[self._end].masked_fill_(none, 0)
        self._windows = bool((self._stop - self._start == self._count).all())
        self._all = len(self._ids) == k.shape[0]
        self._k = k if self._all else k[self._ids]
        self._mode, reason = patch.mode, ""
        if self._mode == "fp8":
            reason = _engine_cannot(module, k, topk)
            if not reason and not self._windows:
                reason = "rows that see no contiguous run of keys"
        if reason:
            patch.fallbacks[f"{reason}: scored natively"] += 1
            self._mode = "native"
        self._codes = quantise(self._k, patch.scale_format) if self._mode == "fp8" else None

    def select(self, queries: Tensor, weights: Tensor, part: slice) -> Tensor:
        """Return (S, K) ids of all rows in `part`."""
        import torch

        self._patch.calls[self._mode] += 1
        start, stop = self._start[part], self._stop[part]
        if self._mode == "fp8":
            found = self._engine(queries, weights, start, stop)
        else:
            seen = None
            if not self._windows:
                seen = self._mask.rows(part.start, part.stop, self._mask.shape[2])[self._index]
                seen = seen[:, self._ids]
            scale = self._module.softmax_scale
            budget = self._patch.budget(queries.device.type)
            found = native(queries, self._k, weights, scale, start, stop, self._topk, seen, budget)
        ids = found
        if not self._all:
            ids = torch.where(found >= 0, self._ids[found.clamp(min=0)], -1)
        short = self._count[part] < self._topk
        if not bool(short.any()):
            return ids
        if self._whole:
            return filled_span(ids, self._first[part], self._count[part])
        rows = self._mask.rows(part.start, part.stop, self._mask.shape[2])[self._index]
        ids[short] = filled(ids[short], rows[short])
        return ids

    def _engine(self, queries: Tensor, weights: Tensor, start: Tensor, stop: Tensor) -> Tensor:
        import torch

        assert self._codes is not None
        codes, scales = quantise(queries, self._patch.scale_format)
        result = self._patch.indexer(torch.get_num_threads()).topk(
            codes,
            self._codes[0],
            self._codes[1],
            (weights * scales * self._module.softmax_scale).contiguous(),
            start.to(torch.int32),
            stop.to(torch.int32),
            self._topk,
        )
        self._patch.count(result.stats)
        indices: Tensor = result.indices
        return indices


def _understood(
    module: Any, hidden_states: Tensor, attention_mask: Any, unknown: dict[str, Any]
) -> tuple[Mask | None, str]:
    """Return the mask of a call that can be served, or why it cannot."""
    if module.training:
        return None, "training mode"
    if unknown:
        return None, f"unknown arguments {', '.join(sorted(unknown))}"
    if isinstance(attention_mask, LazyMask):
        return attention_mask, ""
    if attention_mask is None:
        return None, "no mask"
    mask = TensorMask(attention_mask, hidden_states.shape[0])
    if mask.has_bias():
        return None, "an additive mask with other values than 0 and forbidden"
    return mask, ""


def _engine_cannot(module: Any, k: Tensor, topk: int) -> str:
    """Return why the engine cannot serve these keys, or nothing."""
    heads, dim = module.n_heads, module.head_dim
    problem = engine_problem(k.device)
    if problem is not None:
        return problem
    on_host = k.device.type == "cpu"
    if not 1 <= heads <= MAX_HEADS:
        return f"{heads} heads"
    dims = range(DIM_STEP, MAX_DIM + 1, DIM_STEP) if on_host else DEVICE_DIMS
    if dim not in dims:
        return f"a head dimension of {dim}"
    if topk > (MAX_TOPK if on_host else DEVICE_MAX_TOPK):
        return f"index_topk {topk}"
    return ""
