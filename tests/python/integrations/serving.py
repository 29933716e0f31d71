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
