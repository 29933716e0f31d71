# SPDX-License-Identifier: Apache-2.0
"""The merge of lists on a CUDA device: the bytes of the host's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dosa
from device_inputs import NEEDED, bits, normal, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]


def lists(seed: int, count: int, rows: int, width: int, values: int) -> tuple[Any, Any]:
    """Scores of few values or many, ids of which some are in several lists, ends anywhere."""
    made = torch.Generator("cuda").manual_seed(seed)
    shape = (count, rows, width)
    scores = torch.randint(-values, values, shape, generator=made, device="cuda").float()
    ids = torch.randint(0, 3 * width * count, shape, generator=made, device="cuda").int()
    ends = torch.randint(0, 2 * width, (count, rows, 1), generator=made, device="cuda")
    ids[torch.arange(width, device="cuda") >= ends] = -1
    return scores, ids


def check(scores: Any, ids: Any, topk: int, order: Any = "id") -> None:
    found, values = dosa.merge_topk(scores, ids, topk, order=order)
    assert found.is_cuda
    expected, wanted = dosa.merge_topk(scores.cpu(), ids.cpu(), topk, order=order)
    assert torch.equal(found.cpu(), expected)
    assert torch.equal(bits(values.cpu()), bits(wanted))


@pytest.mark.parametrize("topk", [1, 100, 2048, 4096])
@pytest.mark.parametrize("count", [1, 2, 8, 64, 256])
@pytest.mark.parametrize("values", [2, 1 << 20])
def test_the_host_merges_the_same(topk: int, count: int, values: int) -> None:
    width = max(1, min(topk, 40_000 // count))
    for order in ("id", "score"):
        check(*lists(topk + count, count, 5, width, values), topk, order)


def test_special_scores() -> None:
    scores, ids = lists(1, 4, 9, 300, 3)
    scores[::2, :, ::7], scores[:, :, 3::11], scores[:, :, 5::13] = torch.nan, torch.inf, -torch.inf
    scores[1, :, ::5] = -0.0
    for topk in (10, 500, 1300):
        check(scores, ids, topk)


@pytest.mark.parametrize("shape", [(0, 3, 5), (3, 0, 5), (3, 2, 0)])
def test_nothing_to_merge(shape: tuple[int, int, int]) -> None:
    scores = torch.zeros(shape, device="cuda")
    found, values = dosa.merge_topk(scores, scores.int(), 7)
    assert found.shape == (shape[1], 7)
    assert bool((found == -1).all())
    assert bool(values.isnan().all())


def test_parts_of_a_context() -> None:
    """E17 on the device: the K best of each part, merged, are those of the whole."""
    given = normal(60, 40_000)
    expected = dosa.topk(*given, 2048, scores=True)
    parts = [slice(0, 1000), slice(1000, 1001), slice(1001, 30_000), slice(30_000, 40_000)]
    scores, ids = [], []
    for part in parts:
        start, end = (bound.clamp(part.start, part.stop) - part.start for bound in given[4:])
        own = [given[0], given[1][part], given[2][part], given[3], start, end]
        found = dosa.topk(*own, 2048, scores=True)
        scores.append(found.scores)
        ids.append(torch.where(found.indices >= 0, found.indices + part.start, -1))
    found, values = dosa.merge_topk(torch.stack(scores), torch.stack(ids), 2048)
    assert torch.equal(found, expected.indices)
    assert torch.equal(bits(values), bits(expected.scores))


def test_capture_and_replay() -> None:
    scores, ids = lists(1, 8, 50, 500, 100)
    dosa.merge_topk(scores, ids, 500)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, values = dosa.merge_topk(scores, ids, 500)
    for seed in (2, 3):
        for old, new in zip((scores, ids), lists(seed, 8, 50, 500, 100), strict=True):
            old.copy_(new)
        found.fill_(-7)
        graph.replay()
        expected = dosa.merge_topk(scores.cpu(), ids.cpu(), 500)
        assert torch.equal(found.cpu(), expected[0])
        assert torch.equal(bits(values.cpu()), bits(expected[1]))


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    scores, ids = lists(1, 3, 4, 50, 10)
    expected = dosa.merge_topk(scores, ids, 20)
    found = dosa.merge_topk(cupy.asarray(scores), cupy.asarray(ids), 20)
    assert isinstance(found[0], cupy.ndarray)
    np.testing.assert_array_equal(cupy.asnumpy(found[0]), expected[0].cpu().numpy())


def test_refused() -> None:
    scores, ids = lists(1, 3, 4, 50, 10)
    cases: list[tuple[tuple[Any, Any, Any], str]] = [
        ((scores, ids.cpu(), 5), "ids: found a tensor on cpu, expected one on cuda:0"),
        ((scores, ids.long(), 5), "ids: found dtype int64, expected int32"),
        ((scores, ids[:2], 5), "ids: found shape (2, 4, 50), expected (L = 3, Q = 4, C = 50)"),
        ((scores, ids, 4097), "topk: found 4097, expected 1 to 4096"),
        ((scores, ids, 0), "topk: found 0, expected 1 to 4096"),
        ((scores.expand(3, 4, 50)[..., ::2], ids[..., ::2], 5), "scores: found element strides"),
    ]
    for given, message in cases:
        with pytest.raises(dosa.Error) as caught:
            dosa.merge_topk(*given)
        assert str(caught.value).startswith(message)
    wide = torch.zeros((257, 1, 1), device="cuda")
    with pytest.raises(dosa.ArgumentError, match=r"^num_lists: found 257, expected 0 to 256"):
        dosa.merge_topk(wide, wide.int(), 5)
