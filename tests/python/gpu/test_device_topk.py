# SPDX-License-Identifier: Apache-2.0
"""Selections of PyTorch tensors on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dosa
import oracle
from device_inputs import CODES, NEEDED, best, bits, check, normal, to_device, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

Q, H, D, N, K = 37, 32, 128, 3000, 64


@pytest.mark.parametrize("heads", [5, 32, 64, 128])
@pytest.mark.parametrize("order", ["id", "score"])
def test_exact_inputs_against_an_oracle(heads: int, order: str) -> None:
    """Where all sums are exact, every score model and every device give the same bits."""
    inputs = oracle.integers(heads, Q, heads, D, N)
    ids, values = oracle.topk(inputs, K, order=order)
    found = dosa.topk(*to_device(inputs), K, scores=True, order=order)
    assert (found.stats, found.rows) == (None, None)
    assert found.indices.is_cuda
    assert found.indices.dtype == torch.int32
    np.testing.assert_array_equal(found.indices.cpu().numpy(), ids)
    np.testing.assert_array_equal(found.scores.cpu().numpy(), values)
    scores = dosa.scores(*to_device(inputs)).cpu().numpy()
    np.testing.assert_array_equal(scores, dosa.scores(*inputs))


@pytest.mark.parametrize("mode", ["auto", "base", "full", "screen", "dosa"])
@pytest.mark.parametrize("heads", [32, 64])
def test_every_mode_gives_the_order_of_the_scores(mode: str, heads: int) -> None:
    check(normal(130, 20_000, heads, seed=heads), 2048, mode=mode)


@pytest.mark.parametrize(
    ("queries", "keys", "kept"), [(0, 50, 4), (5, 0, 4), (1, 1, 1), (3, 9, 20)]
)
def test_small_shapes(queries: int, keys: int, kept: int) -> None:
    found = check(normal(queries, keys, causal=False), kept)
    assert found.indices.shape == (queries, kept)


def test_windows_by_default_are_all_keys() -> None:
    given = normal(9, 500, causal=False)
    assert torch.equal(dosa.topk(*given[:4], topk=K).indices, dosa.topk(*given, K).indices)
    assert torch.equal(dosa.scores(*given[:4]), dosa.scores(*given))


def test_scores_of_some_rows() -> None:
    given = normal(40, 700)
    given[4] += 90
    everything = dosa.scores(*given)
    assert torch.equal(dosa.scores(*given, rows=(11, 23)), everything[11:23])
    assert dosa.scores(*given, rows=(3, 3)).shape == (0, 700)
    column = torch.arange(700, device="cuda")
    hidden = (column < given[4][:, None]) | (column >= given[5][:, None])
    assert torch.equal(everything == -torch.inf, hidden)


def test_index_forms() -> None:
    given = normal(33, 900, causal=False)
    given[4] += torch.arange(33, dtype=torch.int32, device="cuda") * 7
    ids = dosa.topk(*given, K).indices
    relative = ids - given[4][:, None]
    assert torch.equal(dosa.topk(*given, K, index_form="relative").indices, relative)
    offset = torch.arange(33, dtype=torch.int32, device="cuda") * 1000
    found = dosa.topk(*given, K, index_form="offset", index_offset=offset).indices
    assert torch.equal(found, relative + offset[:, None])
    table = torch.randperm(60, device="cuda").int()
    for pages in (table, table.repeat(33, 1)):
        found = dosa.topk(*given, K, index_form="slot", page_table=pages, page_size=16).indices
        assert torch.equal(found, table[relative.long() // 16] * 16 + relative % 16)


def test_strided_inputs_and_codes_as_bytes() -> None:
    given = normal(20, 800)
    expected = dosa.topk(*given, K)
    wide_q = torch.zeros((20, H + 1, D), dtype=torch.uint8, device="cuda")
    wide_k = torch.zeros((800, D + 16), dtype=torch.uint8, device="cuda")
    wide_w = torch.zeros((20, H + 3), device="cuda")
    wide_q[:, :H], wide_k[:, :D] = given[0].view(torch.uint8), given[1].view(torch.uint8)
    wide_w[:, :H] = given[3]
    strided = [wide_q[:, :H], wide_k[:, :D].view(CODES), given[2], wide_w[:, :H], *given[4:]]
    assert torch.equal(dosa.topk(*strided, K).indices, expected.indices)


def test_outputs_of_the_caller() -> None:
    given = normal(20, 800)
    expected = dosa.topk(*given, K, scores=True)
    indices = torch.full((20, K + 5), 7, dtype=torch.int32, device="cuda")
    values = torch.full((20, K), 7.0, device="cuda")
    found = dosa.topk(*given, K, out=(indices[:, :K], values))
    assert found.indices.data_ptr() == indices.data_ptr()
    assert torch.equal(indices[:, :K], expected.indices)
    assert torch.equal(values, expected.scores)
    assert bool((indices[:, K:] == 7).all()), "something behind the rows was written"


def test_an_indexer_keeps_its_workspace_and_answers_alike() -> None:
    indexer = dosa.Indexer()
    small, large = normal(10, 400), normal(200, 9000)
    first = indexer.topk(*large, K).indices
    held = indexer.workspace_bytes
    assert held > 0
    assert torch.equal(indexer.topk(*small, K).indices, dosa.topk(*small, K).indices)
    assert torch.equal(indexer.topk(*large, K).indices, first)
    assert indexer.workspace_bytes == held
    indexer.release()
    assert indexer.workspace_bytes == 0


def test_nothing_is_copied() -> None:
    """Memory that a call takes: its results and its workspace, not the inputs once more."""
    given = normal(64, 200_000)
    indexer = dosa.Indexer()
    indexer.topk(*given, K)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = indexer.topk(*given, K)
    taken = torch.cuda.max_memory_allocated() - before
    assert taken == found.indices.numel() * 4


@pytest.mark.parametrize("limit", [{}, {"workspace_mib": 256}])
def test_the_workspace_stays_within_its_limit(limit: Any) -> None:
    given = normal(3000, 40_000)
    found = dosa.Indexer(**limit, mode="base")
    ids = found.topk(*given, 512).indices
    assert found.workspace_bytes <= limit.get("workspace_mib", 2048) << 20
    assert torch.equal(ids, dosa.topk(*given, 512, mode="full").indices)


def test_special_values() -> None:
    """NaN and infinite scales, zero and negative ones, NaN weights: last, first, never lost."""
    given = normal(16, 2000, causal=False)
    given[2][::7] = torch.nan
    given[2][3::11] = torch.inf
    given[2][5::13] = 0
    given[2][6::17] *= -1
    given[3][4] = torch.nan
    scores = dosa.scores(*given)
    found = dosa.topk(*given, 2000, scores=True, order="score")
    by_score = scores.gather(1, found.indices.long())
    assert torch.equal(bits(by_score + 0.0), bits(found.scores))
    finite = found.scores[:3]
    assert bool((finite[:, 1:] <= finite[:, :-1])[~finite[:, 1:].isnan()].all())
    assert torch.equal(
        found.indices.sort(1).values, torch.arange(2000, device="cuda").int().expand(16, -1)
    )
    ids, _ = best(scores.nan_to_num(nan=-3e38), given[4], given[5], 50)
    rows = [row for row in range(16) if row != 4]
    assert torch.equal(dosa.topk(*given, 50).indices[rows], ids[rows])
