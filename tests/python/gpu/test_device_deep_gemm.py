# SPDX-License-Identifier: Apache-2.0
"""The inputs of DeepGEMM's own attention test, through the calls that are named as its own."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import dosa
from device_inputs import NEEDED, best, normal, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

K = 2048
QUERIES = 2048


@pytest.fixture(scope="module")
def gemm() -> Any:
    return importlib.import_module("dosa.compat.deep_gemm")


def windows(given: list[Any], context_parallel: bool) -> None:
    """The rows' ends: causal, or those of one of several context-parallel ranks."""
    keys, rows = given[1].shape[0], given[0].shape[0]
    if not context_parallel:
        return
    chunk, size = rows // 2, keys // rows
    rank = size // 3
    place = torch.arange(chunk, dtype=torch.int32, device="cuda")
    given[5][:chunk] = rank * chunk + place
    given[5][chunk:] = (2 * size - 1 - rank) * chunk + place


@pytest.mark.parametrize("keys", [8192, 65536])
@pytest.mark.parametrize("heads", [32, 64])
@pytest.mark.parametrize("context_parallel", [False, True])
def test_sets_are_the_top_of_the_logits(
    gemm: Any, keys: int, heads: int, context_parallel: bool
) -> None:
    given = normal(QUERIES, keys, heads, seed=keys + heads)
    windows(given, context_parallel)
    q, k, k_scale, weights, start, end = given
    call = (q, (k, k_scale), weights, start, end)
    logits = gemm.fp8_mqa_logits(*call)
    ids, _ = best(logits, start, end, K)
    assert torch.equal(gemm.fp8_mqa_topk(*call, K), ids)
    column = torch.arange(keys, device="cuda")
    assert torch.equal(logits == -torch.inf, (column < start[:, None]) | (column >= end[:, None]))
    rows = torch.arange(0, QUERIES, 61, device="cuda")
    close(logits[rows], [q[rows], k, k_scale, weights[rows], start[rows], end[rows]])


def close(logits: Any, given: list[Any]) -> None:
    """DeepGEMM's own measure of a difference, against fp64 sums of the same codes."""
    q, k, k_scale, weights, _, _ = given
    dots = torch.einsum("qhd,nd->qhn", q.double(), k.double()).relu_()
    exact = torch.einsum("qh,qhn->qn", weights.double(), dots) * k_scale.double()
    seen = logits != -torch.inf
    found, wanted = logits[seen].double(), exact[seen]
    difference = 1 - 2 * (found * wanted).sum() / (found * found + wanted * wanted).sum()
    assert float(difference) < 5e-6


def test_the_options_of_the_logits(gemm: Any) -> None:
    given = normal(300, 5000)
    given[4] += torch.arange(300, dtype=torch.int32, device="cuda")
    q, k, k_scale, weights, start, end = given
    call = ((k, k_scale), weights, start, end)
    logits = gemm.fp8_mqa_logits(q, *call)
    assert torch.equal(gemm.fp8_mqa_logits(q, *call, clean_logits=False), logits)
    assert torch.equal(gemm.fp8_fp4_mqa_logits((q, None), *call), logits)
    rounded = gemm.fp8_fp4_mqa_logits((q, None), *call, logits_dtype=torch.bfloat16)
    assert torch.equal(rounded, logits.bfloat16())
    width = 5000
    packed = gemm.fp8_mqa_logits(q, *call, clean_logits=False, max_seqlen_k=width)
    for row in (0, 1, 150, 299):
        first, last = int(start[row]), int(end[row])
        assert torch.equal(packed[row, : last - first], logits[row, first:last])
        assert bool((packed[row, last - first :] == -torch.inf).all())
    narrow = gemm.fp8_mqa_logits(q, *call, clean_logits=False, max_seqlen_k=100)
    assert torch.equal(narrow, packed[:, :100])


def test_ids_relative_to_the_window(gemm: Any) -> None:
    q, k, k_scale, weights, start, end = normal(100, 5000)
    start += 1234
    call = (q, (k, k_scale), weights, start, end)
    ids = gemm.fp8_mqa_topk(*call, 64)
    assert torch.equal(gemm.fp8_mqa_topk(*call, 64, index_form="relative"), ids - 1234)


def test_the_logits_repeat_bit_for_bit(gemm: Any) -> None:
    q, k, k_scale, weights, start, end = normal(500, 20_000)
    first = gemm.fp8_mqa_logits(q, (k, k_scale), weights, start, end)
    for _ in range(20):
        again = gemm.fp8_mqa_logits(q, (k, k_scale), weights, start, end)
        assert torch.equal(again.view(torch.int32), first.view(torch.int32))


def test_refused(gemm: Any) -> None:
    q, k, k_scale, weights, start, end = normal(10, 500)
    with pytest.raises(dosa.ArgumentError, match=r"^q: found scale factors \(Tensor\), expected"):
        gemm.fp8_fp4_mqa_logits((q, k_scale), (k, k_scale), weights, start, end)
    with pytest.raises(dosa.ArgumentTypeError, match=r"^logits_dtype: found torch.float16"):
        gemm.fp8_fp4_mqa_logits(
            (q, None), (k, k_scale), weights, start, end, logits_dtype=torch.float16
        )
    with pytest.raises(dosa.ArgumentError, match=r"^k_end: found a tensor on cpu, expected one"):
        gemm.fp8_mqa_logits(q, (k, k_scale), weights, start, end.cpu())
