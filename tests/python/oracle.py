# SPDX-License-Identifier: Apache-2.0
"""An independent answer: exact integers for the order, float64 for values, NumPy only.

Inputs made here have entries in {-2..2}, weights that are multiples of 1/8 and scales that are
powers of two from 1/4 to 4. Then 32 times a score is an integer, and every partial sum is exact in
fp32 in any order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# e4m3fn codes of -2, -1, 0, 1, 2.
_CODES = np.array([0xC0, 0xB8, 0x00, 0x38, 0x40], np.uint8)
UNIT = 32

# How many times as many cases a property is tried on: 1, or what a nightly run asks for.
SCALE = int(os.environ.get("DOSA_TEST_SCALE", "1"))


@dataclass
class Inputs:
    q: Array
    k: Array
    k_scale: Array
    weights: Array
    k_start: Array
    k_end: Array

    def __iter__(self) -> Any:
        return iter((self.q, self.k, self.k_scale, self.weights, self.k_start, self.k_end))


def integers(
    seed: int, queries: int = 5, heads: int = 4, dim: int = 16, keys: int = 100, plain: bool = False
) -> Inputs:
    """Inputs with exact sums; windows are random unless `plain`, then all keys."""
    rng = np.random.default_rng(seed)
    start = np.zeros(queries, np.int32)
    end = np.full(queries, keys, np.int32)
    if not plain:
        start = rng.integers(-5, keys + 5, queries).astype(np.int32)
        end = rng.integers(-5, keys + 5, queries).astype(np.int32)
    return Inputs(
        q=_CODES[rng.integers(0, 5, (queries, heads, dim))],
        k=_CODES[rng.integers(0, 5, (keys, dim))],
        k_scale=np.exp2(rng.integers(-2, 3, keys)).astype(np.float32),
        weights=(rng.integers(-32, 33, (queries, heads)) / 8).astype(np.float32),
        k_start=start,
        k_end=end,
    )


def reals(seed: int, queries: int, heads: int, dim: int, keys: int) -> Inputs:
    """Inputs whose sums are rounded: random finite codes, weights and scales."""
    rng = np.random.default_rng(seed)
    finite = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
    return Inputs(
        q=rng.choice(finite, (queries, heads, dim)),
        k=rng.choice(finite, (keys, dim)),
        k_scale=np.exp2(rng.uniform(-12, -8, keys)).astype(np.float32),
        weights=rng.uniform(-1, 1, (queries, heads)).astype(np.float32),
        k_start=np.zeros(queries, np.int32),
        k_end=np.full(queries, keys, np.int32),
    )


def decode(codes: Array) -> Array:
    """The values of e4m3fn codes, in float64: written from the definition of the format."""
    exponent = (codes.astype(np.int64) >> 3) & 15
    mantissa = codes.astype(np.int64) & 7
    sign = np.where(codes & 0x80, -1.0, 1.0)
    subnormal = np.ldexp(mantissa / 8, -6)
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    return np.asarray(sign * np.where(exponent == 0, subnormal, normal))


def scores(inputs: Inputs) -> Array:
    """(Q, N) float64 scores; exact on `integers`."""
    dots = np.einsum("qhd,nd->qhn", decode(inputs.q), decode(inputs.k))
    sums = np.einsum("qh,qhn->qn", inputs.weights.astype(np.float64), np.maximum(dots, 0))
    return np.asarray(sums * inputs.k_scale.astype(np.float64))


def topk(
    inputs: Inputs,
    kept: int,
    *,
    order: str = "id",
    forced_first: int = 0,
    forced_last: int = 0,
) -> tuple[Array, Array]:
    """Ids (Q, K), -1 behind the last, and scores, NaN behind the last."""
    exact = scores(inputs)
    scaled = exact * UNIT
    assert np.array_equal(scaled, np.rint(scaled)), "these inputs have no exact order"
    whole = scaled.astype(np.int64)
    ids = np.full((exact.shape[0], kept), -1, np.int32)
    values = np.full((exact.shape[0], kept), np.nan, np.float32)
    for row in range(exact.shape[0]):
        start = min(max(int(inputs.k_start[row]), 0), exact.shape[1])
        end = min(max(int(inputs.k_end[row]), 0), exact.shape[1])
        window = list(range(start, end))
        forced = set(window[:forced_first]) | set(window[max(len(window) - forced_last, 0) :])
        best = sorted(
            window, key=lambda i: (i not in forced, -whole[row, i] if i not in forced else 0, i)
        )
        best = best[:kept]
        if order == "id":
            best.sort()
        ids[row, : len(best)] = best
        values[row, : len(best)] = [np.inf if i in forced else exact[row, i] for i in best]
    return ids, values
