# SPDX-License-Identifier: Apache-2.0
"""Inputs on a CUDA device, and the order of their own scores as the expected answer."""

from __future__ import annotations

from typing import Any

import pytest

import dosa
import oracle
from dosa import _core

torch = pytest.importorskip("torch")

NEEDED = pytest.mark.skipif(
    not (_core.HAS_DEVICE and torch.cuda.is_available()),
    reason="needs a CUDA device, and a package that was built with the device engine",
)
CODES = torch.float8_e4m3fn


def to_device(inputs: oracle.Inputs) -> list[Any]:
    """The six inputs of a call as tensors."""
    q, k, *rest = (torch.from_numpy(array).cuda() for array in inputs)
    return [q.view(CODES), k.view(CODES), *rest]


def normal(
    queries: int, keys: int, heads: int = 32, dim: int = 128, seed: int = 0, causal: bool = True
) -> list[Any]:
    """Rounded inputs, as DeepGEMM's tests make them: normal values, a scale for each key."""
    made = torch.Generator("cuda").manual_seed(seed)

    def random(*shape: int) -> Any:
        return torch.randn(shape, generator=made, device="cuda")

    q = random(queries, heads, dim).to(torch.bfloat16).to(CODES)
    k = random(keys, dim).to(torch.bfloat16).float()
    k_scale = k.abs().amax(1).clamp(min=1e-4) / 448
    codes = (k / k_scale[:, None]).to(CODES)
    end = torch.full((queries,), keys, dtype=torch.int32, device="cuda")
    if causal:
        end = torch.arange(queries, dtype=torch.int32, device="cuda") + keys - queries
    return [q, codes, k_scale, random(queries, heads), torch.zeros_like(end), end]


def best(scores: Any, start: Any, end: Any, topk: int, order: str = "id") -> tuple[Any, Any]:
    """Ids and scores of the best keys of (Q, N) scores, lower ids first where scores are equal."""
    keys = scores.shape[1]
    column = torch.arange(keys, device=scores.device)
    first, last = start.long().clamp(0, keys), end.long().clamp(0, keys)
    hidden = (column < first[:, None]) | (column >= last[:, None])
    values = (scores + 0.0).masked_fill(hidden, -torch.inf)
    ids = values.sort(dim=1, descending=True, stable=True).indices[:, :topk]
    kept = (last - first).clamp(0, min(topk, keys))
    place = torch.arange(ids.shape[1], device=scores.device)
    ids = ids.masked_fill(place >= kept[:, None], keys)
    if order == "id":
        ids = ids.sort(1).values
    found = torch.nn.functional.pad(ids, (0, topk - ids.shape[1]), value=keys)
    wide = torch.nn.functional.pad(values, (0, 1), value=torch.nan)
    return found.masked_fill(found == keys, -1).int(), wide.gather(1, found)


def bits(values: Any) -> Any:
    """The bits of float32 values, those of one NaN for all of them."""
    return values.masked_fill(values.isnan(), torch.nan).view(torch.int32)


def check(given: list[Any], topk: int, **options: Any) -> dosa.TopK[Any]:
    """Assert that a selection is the order of the engine's own scores, bit for bit."""
    order = options.get("order", "id")
    found: dosa.TopK[Any] = dosa.topk(*given, topk, scores=True, **options)
    ids, values = best(dosa.scores(*given), given[4], given[5], topk, order)
    assert torch.equal(found.indices, ids)
    assert torch.equal(bits(found.scores), bits(values))
    return found
