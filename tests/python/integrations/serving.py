# SPDX-License-Identifier: Apache-2.0
"""A prefill step of a serving engine on host tensors, with an exact answer."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

import oracle

H, D, K = 8, 64, 24


class Batch:
    """Requests of a prefill step, keys gathered one after the other."""

    def __init__(self, seed: int = 3) -> None:
        self.total = [130, 40, 300]  # keys of each request
        self.new = [30, 40, 25]  # of which these are queries
        self.rows, self.keys = sum(self.new), sum(self.total)
        inputs = oracle.integers(seed, self.rows, H, D, self.keys, plain=True)
        row = base = 0
        self.request = []
        for index, (total, new) in enumerate(zip(self.total, self.new, strict=True)):
            for i in range(new):
                inputs.k_start[row] = base
                inputs.k_end[row] = base + total - new + i + 1
                self.request.append(index)
                row += 1
            base += total
        self.inputs = inputs
        self.relative = self.expected(inputs)

    def expected(self, inputs: oracle.Inputs, **forced: int) -> Any:
        ids, _ = oracle.topk(inputs, K, **forced)
        return np.where(ids >= 0, ids - inputs.k_start[:, None], -1)

    def tensors(self) -> list[Any]:
        q, k, *rest = (torch.from_numpy(array) for array in self.inputs)
        return [q.view(torch.float8_e4m3fn), k.view(torch.float8_e4m3fn), *rest]


def all_logits(operands: Any, compressed: int = 0) -> Any:
    """Logits as DeepGEMM gives them, through the package's own scores."""
    dosa = importlib.import_module("dosa")
    logits = dosa.scores(*operands)
    if not compressed:
        return logits
    found = torch.full((len(logits), compressed), -torch.inf)
    for row, (start, end) in enumerate(zip(operands[4], operands[5], strict=True)):
        found[row, : end - start] = logits[row, start:end]
    return found


class Steps:
    """A decode step over a paged cache: a few queries of each request, newest last."""

    def __init__(self, next_n: int, page: int = 64, seed: int = 4) -> None:
        self.next_n, self.page = next_n, page
        self.lengths = [130, 40, 300, 5]
        self.rows = next_n * len(self.lengths)
        inputs = oracle.integers(seed, self.rows, H, D, sum(self.lengths), plain=True)
        pages = sum(-(-length // page) for length in self.lengths)
        rng = np.random.default_rng(seed)
        order = iter(rng.permutation(pages).tolist())
        cache = np.full((pages, page * (D + 4)), 0x5A, np.uint8)
        self.table = np.zeros((len(self.lengths), 6), np.int32)
        base = row = 0
        for b, length in enumerate(self.lengths):
            for first in range(0, length, page):
                count = min(page, length - first)
                own = next(order)
                self.table[b, first // page] = own
                keys = slice(base + first, base + first + count)
                cache[own, : count * D] = inputs.k[keys].reshape(-1)
                cache[own, page * D :].view(np.float32)[:count] = inputs.k_scale[keys]
            for i in range(next_n):
                inputs.k_start[row], inputs.k_end[row] = base, base + length - next_n + 1 + i
                row += 1
            base += length
        self.inputs = inputs
        self.cache = cache.reshape(pages, page, D + 4)
        self.lens = (inputs.k_end - inputs.k_start).reshape(-1, next_n).astype(np.int32)

    def expected(self, **forced: int) -> Any:
        ids, _ = oracle.topk(self.inputs, K, **forced)
        return np.where(ids >= 0, ids - self.inputs.k_start[:, None], -1)

    def tensors(self) -> tuple[Any, Any, Any, Any, Any]:
        """q (rows, H, D), the cache, weights, lengths (B, next_n), the table."""
        arrays = (self.inputs.q, self.cache, self.inputs.weights, self.lens, self.table)
        q, *rest = (torch.from_numpy(array) for array in arrays)
        return (q.view(torch.float8_e4m3fn), *rest)


def step_logits(q: Any, cache: Any, weights: Any, lens: Any, table: Any, width: int) -> Any:
    """Logits of a step as DeepGEMM gives them, through the package's own scores."""
    gemm = importlib.import_module("dosa.compat.deep_gemm")
    if cache.dim() == 3:
        cache = cache.unsqueeze(2)
    return gemm.fp8_paged_mqa_logits(q, cache, weights, lens, table, None, width)


def rank_rows(logits: Any, lens: Any, out: Any, topk: int) -> None:
    """The selection that serving engines document: positions of the best, then -1."""
    for row, length in enumerate(lens.flatten().tolist()):
        kept = min(topk, length)
        best = torch.sort(logits[row, :length], descending=True, stable=True).indices[:kept]
        out[row, :kept] = best.sort().values.int()
        out[row, kept:] = -1
