# SPDX-License-Identifier: Apache-2.0
"""Decode steps over paged caches on a CUDA device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dosa
from device_inputs import CODES, torch

D = 128


@dataclass
class Step:
    """The arrays of a step, in the order of the calls."""

    q: Any
    cache: Any
    weights: Any
    lens: Any
    table: Any

    def __iter__(self) -> Any:
        return iter((self.q, self.cache, self.weights, self.lens, self.table))

    def host(self) -> list[Any]:
        return [array.cpu() for array in self]


def make(
    lengths: list[int],
    *,
    heads: int = 32,
    next_n: int = 1,
    page_size: int = 64,
    exact: bool = False,
    seed: int = 0,
) -> Step:
    """Requests of these lengths in shuffled pages; sums are exact in fp32 where `exact`."""
    made = torch.Generator("cuda").manual_seed(seed)
    blocks = [max(1, -(-length // page_size)) for length in lengths]
    pages = sum(blocks) + 2
    order = torch.randperm(pages, generator=made, device="cuda").int()
    table = torch.full((len(lengths), max(blocks) + 1), -1, dtype=torch.int32, device="cuda")
    for b, count in enumerate(blocks):
        table[b, :count] = order[sum(blocks[:b]) :][:count]
    tokens = pages * page_size
    rows = len(lengths) * next_n
    if exact:
        k = torch.randint(-2, 3, (tokens, D), generator=made, device="cuda").float()
        scale = torch.exp2(torch.randint(-2, 3, (tokens,), generator=made, device="cuda").float())
        q = torch.randint(-2, 3, (rows, heads, D), generator=made, device="cuda").float()
        weights = torch.randint(-32, 33, (rows, heads), generator=made, device="cuda") / 8
    else:
        k = torch.randn((tokens, D), generator=made, device="cuda")
        scale = k.abs().amax(1) / 448
        k = k / scale[:, None]
        q = torch.randn((rows, heads, D), generator=made, device="cuda")
        weights = torch.randn((rows, heads), generator=made, device="cuda")
    codes = k.to(CODES).view(torch.uint8).view(pages, -1)
    cache = torch.cat((codes, scale.view(torch.uint8).view(pages, -1)), 1)
    last = torch.tensor(lengths, dtype=torch.int32, device="cuda")[:, None]
    lens = last - torch.arange(next_n - 1, -1, -1, dtype=torch.int32, device="cuda")
    return Step(
        q.to(CODES).view(len(lengths), next_n, heads, D),
        cache.view(pages, page_size, 1, D + 4).contiguous(),
        weights.contiguous(),
        lens.contiguous(),
        table,
    )


def by_prefill(step: Step, topk: int, **options: Any) -> tuple[Any, Any]:
    """Ids and scores of a step from the keys of its requests, gathered."""
    lens = step.lens.clamp(min=0)
    ends = torch.nn.functional.pad(lens.amax(1).cumsum(0), (1, 0)).int()
    k, k_scale = dosa.paged_gather(step.cache, step.table, ends, head_dim=D)
    next_n = step.lens.shape[1]
    start = ends[:-1].repeat_interleave(next_n)
    end = (start + lens.flatten()).int()
    q = step.q.flatten(0, 1)
    found = dosa.topk(
        q, k, k_scale, step.weights, start, end, topk, scores=True, index_form="relative", **options
    )
    return found.indices, found.scores
