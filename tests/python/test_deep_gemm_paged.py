# SPDX-License-Identifier: Apache-2.0
"""The decode calls named as in DeepGEMM, on the host."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import dosa
import oracle
from test_decode import DIM, draw, expected, step

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")

SIZES = (130, 1, 300, 64)
K = 20


@pytest.fixture(scope="module")
def gemm() -> Any:
    return importlib.import_module("dosa.compat.deep_gemm")


def call(requests: list[oracle.Inputs]) -> list[Any]:
    """q, fused cache, weights, context_lens and block table as tensors."""
    q, cache, weights, lens, table = (torch.from_numpy(array) for array in step(requests))
    return [q.view(torch.float8_e4m3fn), cache.view(-1, 64, 1, DIM + 4), weights, lens, table]


def test_logits(gemm: Any) -> None:
    requests = draw(7, SIZES)
    arrays = call(requests)
    logits = gemm.fp8_paged_mqa_logits(*arrays, None, 320)
    assert logits.shape == (8, 320)
    for b, request in enumerate(requests):
        request.k_start[:] = 0
        exact = oracle.scores(request)
        for t, length in enumerate(np.clip(request.k_end, 0, None)):
            row = logits[2 * b + t].numpy()
            np.testing.assert_array_equal(row[:length], exact[t, :length].astype(np.float32))
            assert np.all(np.isneginf(row[length:]))
    newer = gemm.fp8_fp4_paged_mqa_logits((arrays[0], None), *arrays[1:], None, 320)
    assert torch.equal(newer, logits)
    rounded = gemm.fp8_fp4_paged_mqa_logits(
        (arrays[0], None), *arrays[1:], None, 320, logits_dtype=torch.bfloat16
    )
    assert torch.equal(rounded, logits.bfloat16())
    narrow = gemm.fp8_paged_mqa_logits(*arrays, None, 50)
    assert torch.equal(narrow, logits[:, :50])


def test_lengths_of_the_last_query_alone(gemm: Any) -> None:
    requests = draw(8, SIZES)
    for request in requests:
        request.k_end[0] = request.k_end[1] - 1
    arrays = call(requests)
    expected_logits = gemm.fp8_paged_mqa_logits(*arrays, None, 300)
    arrays[3] = arrays[3][:, 1].contiguous()
    assert torch.equal(gemm.fp8_paged_mqa_logits(*arrays, None, 300), expected_logits)


@pytest.mark.parametrize("form", ["relative", "slot"])
def test_topk(gemm: Any, form: str) -> None:
    requests = draw(9, SIZES)
    arrays = call(requests)
    ids, _ = expected(requests, K)
    if form == "slot":
        table = arrays[4].numpy().repeat(2, axis=0)
        place = np.maximum(ids, 0)
        slots = np.take_along_axis(table, place // 64, 1) * 64 + place % 64
        ids = np.where(ids >= 0, slots, -1)
    witnesses = dosa.Witnesses(K, len(SIZES))
    for _ in range(2):
        found = gemm.fp8_paged_mqa_topk(*arrays, None, 300, K, index_form=form, witnesses=witnesses)
        np.testing.assert_array_equal(found.numpy(), ids)
    assert witnesses.states.any()


def schedule(lens: Any, num_sms: int) -> Any:
    """DeepGEMM's schedule for Hopper, one multiprocessor after the other."""
    batch, next_n = lens.shape
    atoms = -(-next_n // 2)
    segments = [-(-int(row[-1]) // 256) for row in lens]
    work = [
        (b * atoms + a, s) for b in range(batch) for a in range(atoms) for s in range(segments[b])
    ]
    share, more = divmod(len(work), num_sms)
    starts, at = [], 0
    for sm in range(num_sms):
        starts.append(work[at] if at < len(work) else (batch * atoms, 0))
        at += share + (sm >= num_sms - more)
    return [*starts, (batch * atoms, 0)]


@pytest.mark.parametrize("next_n", [1, 2, 4])
@pytest.mark.parametrize("num_sms", [1, 5, 132])
def test_schedule(gemm: Any, next_n: int, num_sms: int) -> None:
    made = torch.Generator().manual_seed(next_n)
    lens = torch.randint(0, 9000, (7, next_n), generator=made).int()
    lens[3] = 0
    found = gemm.get_paged_mqa_logits_metadata(lens, 64, num_sms)
    assert (found.dtype, found.shape) == (torch.int32, (num_sms + 1, 2))
    assert [tuple(row) for row in found.tolist()] == schedule(lens, num_sms)
    empty = gemm.get_paged_mqa_logits_metadata(lens[:0], 64, num_sms)
    assert not bool(empty.any())


def test_refused(gemm: Any) -> None:
    arrays = call(draw(11, SIZES))
    lens = arrays[3]
    cases: list[tuple[Any, str]] = [
        (
            lambda: gemm.fp8_paged_mqa_logits(*arrays, None, 99, indices=lens),
            "indices: found Tensor",
        ),
        (lambda: gemm.get_paged_mqa_logits_metadata(lens, 64, 9, lens), "indices: found Tensor"),
        (
            lambda: gemm.get_paged_mqa_logits_metadata(lens, 32, 9),
            "block_kv: found 32, expected 64",
        ),
        (
            lambda: gemm.get_paged_mqa_logits_metadata(lens[0], 64, 9),
            "context_lens: found torch.int",
        ),
        (
            lambda: gemm.fp8_fp4_paged_mqa_logits((arrays[0], lens), *arrays[1:], None, 9),
            "q: found scale factors",
        ),
        (lambda: gemm.fp8_paged_mqa_logits(*arrays, None, -1), "max_context_len: found -1"),
        (
            lambda: gemm.fp8_paged_mqa_logits(*arrays[:3], lens.long(), arrays[4], None, 9),
            "context_lens: found torch.int64 of shape",
        ),
        (
            lambda: gemm.fp8_paged_mqa_logits(arrays[0], arrays[1], lens, *arrays[3:], None, 9),
            "weights: found shape",
        ),
    ]
    for refused, message in cases:
        with pytest.raises(dosa.Error, match=f"^{message}"):
            refused()
