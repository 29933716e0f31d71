# SPDX-License-Identifier: Apache-2.0
"""Selection of the model's own scores, quantisation, and masks by the row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dosa.integrations._fp8 import quantise  # noqa: E402
from dosa.integrations.transformers import _masks, _select  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


def order(row: Any, hidden: Any) -> list[int]:
    """Visible ids by descending score, NaN last, ties by ascending id: Python's sort, no bits."""

    def key(i: int) -> tuple[bool, float, int]:
        value = float(row[i])
        return (math.isnan(value), 0.0 if math.isnan(value) else -value, i)

    return sorted((i for i in range(len(row)) if not hidden[i]), key=key)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4028235e38]


@pytest.mark.parametrize("values", [SPECIAL, [0.0, -0.0, 1.0, 2.0, -3.0], [1.0]])
@pytest.mark.parametrize("topk", [1, 5, 24])
def test_best_of_ties_and_special_values(values: list[float], topk: int) -> None:
    rng = np.random.default_rng(3)
    rows = rng.choice(np.array(values, np.float32), (40, 24))
    hidden = rng.random((40, 24)) < 0.4
    hidden[0] = True
    found = _select.best(torch.from_numpy(rows.copy()), torch.from_numpy(hidden), topk)
    for row in range(40):
        expected = sorted(order(rows[row], hidden[row])[:topk])
        assert found[row].tolist() == expected + [-1] * (topk - len(expected))


@pytest.mark.parametrize("budget", [1, 40_000, 1 << 26])
@pytest.mark.parametrize("holes", [False, True])
def test_native_on_sums_without_rounding(budget: int, holes: bool) -> None:
    """Integers: every sum is exact in any order, so ids must be equal, ties included."""
    rng = np.random.default_rng(5)
    rows, heads, dim, keys, topk = 37, 4, 16, 3000, 60
    q = rng.integers(-2, 3, (rows, heads, dim))
    k = rng.integers(-2, 3, (keys, dim))
    weights = rng.integers(-4, 5, (rows, heads))
    start = rng.integers(0, 50, rows)
    end = start + rng.integers(0, keys - 50, rows)
    seen = rng.random((rows, keys)) < 0.7 if holes else np.ones((rows, keys), bool)
    dots = np.maximum(np.einsum("qhd,nd->qhn", q, k), 0)
    exact = np.einsum("qh,qhn->qn", weights, dots) * 0.25
    arrays = (q.astype(np.float32), k.astype(np.float32), weights.astype(np.float32))
    tensors = [torch.from_numpy(array) for array in arrays]
    found = _select.native(
        *tensors,
        0.25,
        torch.from_numpy(start),
        torch.from_numpy(end),
        topk,
        torch.from_numpy(seen) if holes else None,
        budget,
    )
    for row in range(rows):
        hidden = ~seen[row]
        hidden[: start[row]] = True
        hidden[end[row] :] = True
        expected = sorted(order(exact[row], hidden)[:topk])
        assert found[row].tolist() == expected + [-1] * (topk - len(expected))


def test_filled_rows_hold_distinct_unseen_keys() -> None:
    rng = np.random.default_rng(9)
    keys, topk = 40, 25
    ids = torch.full((30, topk), -1)
    seen = torch.zeros((30, keys), dtype=torch.bool)
    first = torch.from_numpy(rng.integers(0, 20, 30))
    count = torch.from_numpy(rng.integers(0, 20, 30))
    for row in range(30):
        visible = torch.arange(first[row], first[row] + count[row])
        seen[row, visible] = True
        ids[row, : len(visible)] = visible
    spans = _select.filled_span(ids, first, count)
    for filled in (spans, _select.filled(ids, seen)):
        for row in range(30):
            kept = int(count[row])
            assert filled[row, :kept].tolist() == ids[row, :kept].tolist()
            unseen = [i for i in range(keys) if not seen[row, i]]
            assert filled[row, kept:].tolist() == unseen[: topk - kept]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scales_are_the_least_powers_of_two(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    magnitudes = np.exp2(rng.uniform(-40, 40, (200, 1)))
    x = torch.from_numpy(rng.standard_normal((200, 128)) * magnitudes).to(dtype)
    x[0] = 0
    x[1] = 448.0  # exactly the largest value: scale 1
    codes, scales = quantise(x)
    for row in range(200):
        least = max(float(x[row].abs().max()), float(np.float32(1e-10))) / 448
        scale = float(scales[row])
        assert math.frexp(scale)[0] == 0.5
        assert scale >= least * (1 - 1e-6)
        assert scale / 2 < least
    assert float(scales[1]) == 1.0
    error = (codes.float() * scales[:, None] - x.float()).abs()
    # Half a step of 3 mantissa bits, or of the smallest subnormal.
    assert bool((error <= torch.maximum(x.float().abs() / 16, scales[:, None] * 2**-10)).all())


def test_scales_without_rounding_reach_the_largest_code() -> None:
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((50, 64))).float()
    codes, scales = quantise(x, "fp32")
    assert bool((codes.float().abs().amax(1) == 448).all())
    np.testing.assert_allclose(scales.numpy(), x.abs().amax(1).numpy() / 448, rtol=1e-6)


def test_nan_stays_nan_and_infinity_is_clamped() -> None:
    x = torch.zeros((2, 16))
    x[0, 3], x[1, 4] = math.nan, math.inf
    codes, _ = quantise(x)
    assert bool(codes.float()[0].isnan().any())
    assert float(codes.float()[1, 4]) == 448


class TestMasks:
    def mask(self, seed: int, batch: int = 2, rows: int = 9, keys: int = 31) -> Any:
        return torch.from_numpy(np.random.default_rng(seed).random((batch, rows, keys)) < 0.3)

    @pytest.mark.parametrize("tile", [1, 100, 1 << 24])
    def test_spans(self, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_masks, "TILE_ELEMENTS", tile)
        mask = self.mask(4)
        mask[0, 3] = False
        mask[:, :, 7] = False
        spans = _masks.TensorMask(mask, 2).spans()
        for b in range(2):
            for row in range(9):
                seen = [i for i in range(31) if mask[b, row, i]]
                expected = (seen[0], seen[-1] + 1, len(seen)) if seen else (31, 0, 0)
                found = (spans.first[b, row], spans.end[b, row], spans.count[b, row])
                assert tuple(map(int, found)) == expected
            assert spans.seen[b].tolist() == mask[b].any(0).tolist()

    def test_additive(self) -> None:
        mask = self.mask(5)
        additive = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        made = _masks.TensorMask(additive, 2)
        assert not made.has_bias()
        assert bool((made.rows(2, 5, 20) == mask[:, 2:5, :20]).all())
        additive[1, 2, 3] = -0.5
        assert made.has_bias()

    def test_one_mask_for_all_sequences(self) -> None:
        mask = self.mask(6, batch=1)
        assert _masks.TensorMask(mask, 3).rows(0, 9, 31).shape == (3, 9, 31)
