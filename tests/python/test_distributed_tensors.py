# SPDX-License-Identifier: Apache-2.0
"""The merge of torch tensors over ranks, placements of tensors, and decode steps over ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dosa  # noqa: E402
import dosa.distributed as dd  # noqa: E402
import oracle  # noqa: E402
from dosa import _rounds, _ways  # noqa: E402
from dosa._exchange import Exchange  # noqa: E402
from ranks import KINDS, ThreadTransport, cut, run_failing, run_ranks, sharding  # noqa: E402
from test_distributed_processes import run_processes  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(params=["direct", "owners"])
def rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both protocols on inputs of any size."""
    monkeypatch.setattr(_rounds, "DIRECT_BYTES", 2**40 if request.param == "direct" else -1)
    return str(request.param)


def candidates(seed: int, size: int, rows: int, width: int) -> list[tuple[Any, Any]]:
    """Of each rank, keys of its own with many ties and special scores, fewer than `width`."""
    rng = np.random.default_rng(seed)
    values = np.array([0, -0.0, 1, 2, -3, np.nan, np.inf, -np.inf], np.float32)
    found = []
    for rank in range(size):
        scores = rng.choice(values, (rows, width))
        ids = np.argsort(rng.random((rows, 3 * width)), axis=1)[:, :width] * size + rank
        for row in range(rows):
            ids[row, rng.integers(0, width + 1) :] = -1
        found.append((torch.from_numpy(scores), torch.from_numpy(ids.astype(np.int32))))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("order", ["id", "score"])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_merged_tensors(size: int, order: Any, rows: int, rounds: str) -> None:
    topk, width = 20, 17
    given = candidates(size + rows, size, rows, width)
    lists = [torch.stack(part) for part in zip(*given, strict=True)]
    ids, values = dosa.merge_topk(lists[0], lists[1], topk, order=order)

    def run(result: str) -> list[Any]:
        def work(transport: ThreadTransport) -> Any:
            ways = _ways.HostWays(Exchange(transport))
            wanted = _rounds.Wanted(topk, order, True, result)
            return _ways.merge_tensors(ways, *given[transport.rank], wanted)

        return run_ranks(size, work)

    for found in run("all"):
        assert torch.equal(found[0], ids)
        assert found[1].numpy().tobytes() == values.numpy().tobytes()
        assert found[2] == (0, rows)
    parts = run("rows")
    assert [row for part in parts for row in range(*part[2])] == list(range(rows))
    assert torch.equal(torch.cat([part[0] for part in parts]), ids)
    for rank, (own, scores, _) in enumerate(run("local")):
        for row in range(rows):
            mine = (ids[row] >= 0) & (ids[row] % size == rank)
            count = int(mine.sum())
            assert own[row, :count].tolist() == ids[row][mine].tolist()
            assert bool((own[row, count:] == -1).all())
            np.testing.assert_array_equal(scores[row, :count], values[row][mine])


@pytest.mark.parametrize("kind", KINDS)
def test_placements_of_tensors_are_those_of_arrays(kind: str) -> None:
    size, keys = 3, 100
    shards = cut(kind, keys, size)
    headers = [sharding(kind, own).header(len(own)) for own in shards]
    for rank, own in enumerate(shards):
        place = sharding(kind, own).place(rank, headers)
        local = np.array([*range(len(own)), -1], np.int32)
        expected = np.array([*own, -1], np.int32)
        bounds = np.arange(keys + 1)
        below = np.searchsorted(own, bounds)
        for made in (lambda array: array, torch.from_numpy):
            ids = place.to_global(made(local))
            assert ids.dtype == (np.int32 if isinstance(ids, np.ndarray) else torch.int32)
            np.testing.assert_array_equal(np.asarray(ids), expected)
            np.testing.assert_array_equal(np.asarray(place.count_below(made(bounds))), below)


def _merging(rank: int, folder: Path) -> Any:
    """Both protocols over gloo on the host."""
    found = []
    given = candidates(5, 3, 6, 9)[rank]
    for direct in (-1, 2**40):
        _rounds.DIRECT_BYTES = direct
        for result in ("all", "rows"):
            ids, values, rows = dd.merge_over_ranks(*given, 11, result=result)
            found.append((ids.numpy(), values.numpy(), rows))
    return found


def test_merge_over_ranks(tmp_path: Path) -> None:
    given = candidates(5, 3, 6, 9)
    lists = [torch.stack(part) for part in zip(*given, strict=True)]
    ids, values = dosa.merge_topk(*lists, 11)
    for found, _ in run_processes(3, tmp_path, _merging):
        assert len(found) == 4, found
        for own, scores, rows in found:
            np.testing.assert_array_equal(own, ids[slice(*rows)])
            np.testing.assert_array_equal(scores, values[slice(*rows)])


def _refused(rank: int, folder: Path) -> Any:
    found = []
    scores, ids = candidates(5, 1, 6, 9)[0]
    for given, more in (
        ((scores.numpy(), ids), {}),
        ((scores.double(), ids), {}),
        ((scores, ids.long()), {}),
        ((scores[:3], ids), {}),
        ((scores, ids), {"topk": 0}),
        ((scores, ids), {"result": "local"}),
    ):
        try:
            dd.merge_over_ranks(*given, **more)
        except dosa.Error as error:
            found.append(str(error).partition(":")[0])
    return found


def test_what_merge_over_ranks_refuses(tmp_path: Path) -> None:
    ((found, _),) = run_processes(1, tmp_path, _refused)
    assert found == ["scores", "scores", "ids", "scores", "topk", "result"]


class Requests:
    """Requests in paged caches, whole, and the part of one rank."""

    def __init__(self, seed: int, lengths: list[int], next_n: int, page: int = 16) -> None:
        rng = np.random.default_rng(seed)
        self.page, self.lengths, self.next_n = page, lengths, next_n
        self.inputs = oracle.integers(
            seed, queries=len(lengths) * next_n, heads=4, dim=32, keys=max(1, sum(lengths))
        )
        self.q = self.inputs.q.reshape(len(lengths), next_n, 4, 32)
        self.rng = rng
        before = np.arange(next_n - 1, -1, -1)
        self.lens = (np.array(lengths)[:, None] - before).astype(np.int32)

    def part(self, rank: int, size: int) -> tuple[Any, Any]:
        """The cache and the table of a rank: every W-th page of each request."""
        pages: list[Any] = [np.zeros((self.page, 36), np.uint8)]
        rows: list[list[int]] = []
        base = 0
        for length in self.lengths:
            tokens = np.arange(length)
            own = base + tokens[tokens // self.page % size == rank]
            row = []
            for first in range(0, len(own), self.page):
                ids = own[first : first + self.page]
                page = np.zeros((self.page, 36), np.uint8)
                codes, scales = page.reshape(-1)[: self.page * 32], page.reshape(-1)
                codes.reshape(self.page, 32)[: len(ids)] = self.inputs.k[ids]
                scales[self.page * 32 :].view(np.float32)[: len(ids)] = self.inputs.k_scale[ids]
                row.append(len(pages))
                pages.append(page)
            rows.append(row)
            base += length
        width = max(1, *(len(row) for row in rows))
        table = np.full((len(rows), width), -1, np.int32)
        for b, row in enumerate(rows):
            table[b, : len(row)] = row
        return np.stack(pages), table


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("next_n", [1, 3])
def test_decode_over_ranks(size: int, next_n: int, rounds: str) -> None:
    given = Requests(size, [100, 7, 0, 33, 64], next_n)
    cache, table = given.part(0, 1)
    whole = dosa.paged_topk(
        given.q, cache, given.inputs.weights, given.lens, table, 20, scores=True
    )
    clipped = dosa.paged_topk(
        given.q, cache, given.inputs.weights, given.lens, table, 20, max_context=50
    )

    def work(transport: ThreadTransport, lens: Any = given.lens, **more: Any) -> Any:
        own, blocks = given.part(transport.rank, size)
        return dd.paged_topk_over_keys(
            given.q,
            own,
            given.inputs.weights,
            lens,
            blocks,
            20,
            sharding=dd.Interleaved(16),
            transport=transport,
            threads=1,
            **more,
        )

    for found in run_ranks(size, lambda t: work(t, scores=True)):
        assert found.indices.tobytes() == whole.indices.tobytes()
        assert found.scores.tobytes() == whole.scores.tobytes()
    last = np.array(given.lengths, np.int32)
    for found in run_ranks(size, lambda t: work(t, last)):
        assert found.indices.tobytes() == whole.indices.tobytes()
        assert found.scores is None
    for found in run_ranks(size, lambda t: work(t, max_context=50)):
        assert found.indices.tobytes() == clipped.indices.tobytes()


def test_decode_over_ranks_that_disagree() -> None:
    given = Requests(3, [40, 7], 1)

    def work(transport: ThreadTransport) -> Any:
        own, blocks = given.part(transport.rank, 2)
        lens = given.lens + transport.rank
        more: dict[str, Any] = {"sharding": dd.Interleaved(16), "transport": transport}
        return dd.paged_topk_over_keys(
            given.q, own, given.inputs.weights, lens, blocks, 5, threads=1, **more
        )

    for found in run_failing(2, work):
        line = "context_lens: found other values on rank 1 than on rank 0, expected the same on"
        assert isinstance(found, dosa.ArgumentError)
        assert str(found).startswith(line)
