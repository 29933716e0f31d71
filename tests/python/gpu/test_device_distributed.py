# SPDX-License-Identifier: Apache-2.0
"""Ranks with CUDA tensors: processes on one card over gloo, NCCL by itself and where cards are.

NCCL takes one card for each rank, so on a machine with one card its groups have one rank.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import dosa
from device_inputs import NEEDED, bits, normal, torch
from device_pages import make
from ranks import KINDS, cut, sharding
from test_distributed_processes import run_processes

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

K = 300
ROWS, KEYS = 37, 6000


def given_keys(kind: str, rank: int, size: int) -> tuple[list[Any], Any]:
    """The arrays of a rank, and how its keys are spread."""
    given = normal(ROWS, KEYS)
    given[4] += torch.arange(ROWS, dtype=torch.int32, device="cuda") * 3
    own = cut(kind, KEYS, size)[rank]
    ids = torch.from_numpy(own).cuda()
    k = given[1].view(torch.uint8)[ids].view(given[1].dtype)
    return [given[0], k, given[2][ids], *given[3:]], sharding(kind, own)


def whole() -> list[Any]:
    given = normal(ROWS, KEYS)
    given[4] += torch.arange(ROWS, dtype=torch.int32, device="cuda") * 3
    return given


def same(found: Any, expected: Any, rows: slice = slice(None)) -> bool:
    equal: bool = torch.equal(found.indices, expected.indices[rows])
    return equal and torch.equal(bits(found.scores), bits(expected.scores[rows]))


def check_group(group: Any, rank: int, size: int) -> list[str]:
    """Everything that ranks can be asked for; returns what went wrong."""
    import dosa.distributed as dd
    from dosa import _rounds

    wrong = []
    expected = dosa.topk(*whole(), K, scores=True)
    by_score = dosa.topk(*whole(), K, scores=True, order="score")
    common: Any = {"group": group, "timeout": 60}
    for kind in KINDS:
        for direct in (-1, 2**40):
            _rounds.DIRECT_BYTES = direct
            given, how = given_keys(kind, rank, size)
            call: Any = {**common, "sharding": how, "scores": True}
            if not same(dd.topk_over_keys(*given, K, **call), expected):
                wrong.append(f"{kind}, {direct}, all")
            found = dd.topk_over_keys(*given, K, **call, order="score", result="rows")
            if not same(found, by_score, slice(*found.rows)):
                wrong.append(f"{kind}, {direct}, rows")
            found = dd.topk_over_keys(*given, K, **call, result="local")
            own = torch.from_numpy(cut(kind, KEYS, size)[rank]).cuda()
            mine = torch.isin(expected.indices, own)
            kept = expected.indices.masked_fill(~mine, 2**31 - 1).sort(1).values
            if not torch.equal(found.indices, kept.masked_fill(kept == 2**31 - 1, -1)):
                wrong.append(f"{kind}, {direct}, local")
    over_rows: Any = dd.topk_over_rows
    if not same(over_rows(*whole(), K, **common, scores=True), expected):
        wrong.append("topk_over_rows")
    found = over_rows(*whole(), K, **common, result="rows", scores=True)
    if not same(found, expected, slice(*found.rows)):
        wrong.append("topk_over_rows, rows")
    return wrong + check_decode(group, rank, size)


def check_decode(group: Any, rank: int, size: int) -> list[str]:
    """A step of which every W-th page of a request lies on a rank."""
    import dosa.distributed as dd

    lengths = [5000, 1, 64, 700, 12_345]
    step = make(lengths, next_n=2)
    expected = dosa.paged_topk(*step, K, scores=True)
    blocks = step.table[:, rank::size].contiguous()
    if blocks.shape[1] == 0:
        blocks = step.table[:, :1].contiguous()
    call: Any = dd.paged_topk_over_keys
    found = call(
        step.q,
        step.cache,
        step.weights,
        step.lens,
        blocks,
        K,
        sharding=dd.Interleaved(64),
        group=group,
        scores=True,
    )
    return [] if same(found, expected) else ["decode"]


def _gloo(rank: int, folder: Path) -> Any:
    import torch.distributed as dist

    found = {}
    for size in (1, 2, 4):
        group = dist.new_group(list(range(size)))
        if rank < size:
            found[size] = check_group(group, rank, size)
    return found


def test_gloo_on_one_card(tmp_path: Path) -> None:
    for rank, (found, _) in enumerate(run_processes(4, tmp_path, _gloo)):
        assert found == {size: [] for size in (1, 2, 4) if rank < size}


def _capture(group: Any) -> list[str]:
    """Selection, mapping and merge in one CUDA graph; replayed with other inputs."""
    import torch.distributed as dist

    import dosa.distributed as dd

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    placement = dd.Interleaved(64).of_rank(rank, size)
    given = whole()
    every = torch.arange(KEYS, device="cuda")
    ids = every[every // 64 % size == rank]
    own = [given[1].view(torch.uint8)[ids].view(given[1].dtype), given[2][ids]]
    indexer = dosa.Indexer(order="score")

    def call() -> Any:
        start, end = (placement.count_below(bound).int() for bound in given[4:])
        found = indexer.topk(given[0], *own, given[3], start, end, K, scores=True)
        return dd.merge_over_ranks(found.scores, placement.to_global(found.indices), K, group=group)

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found, values, _ = call()
    wrong = []
    for seed in (3, 4):
        other = normal(ROWS, KEYS, seed=seed)
        for place, new in ((0, other[0]), (3, other[3]), (5, other[5])):
            given[place].copy_(new)
        own[0].view(torch.uint8).copy_(other[1].view(torch.uint8)[ids])
        own[1].copy_(other[2][ids])
        found.fill_(-7)
        graph.replay()
        torch.cuda.synchronize()
        expected = dosa.topk(*other[:4], given[4], other[5], K, scores=True)
        if not torch.equal(found, expected.indices):
            wrong.append(f"replay {seed}")
        if not torch.equal(bits(values), bits(expected.scores)):
            wrong.append(f"scores of replay {seed}")
    return wrong


def _nccl(rank: int, folder: Path) -> Any:
    import torch.distributed as dist

    from dosa import _rounds

    torch.cuda.set_device(rank)
    group = dist.new_group(backend="nccl", device_id=torch.device("cuda", rank))
    found = check_group(group, rank, dist.get_world_size(group))
    for direct in (-1, 2**40):
        _rounds.DIRECT_BYTES = direct
        found += _capture(group)
    return found


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_nccl(tmp_path: Path, size: int) -> None:
    if torch.cuda.device_count() < size:
        pytest.skip(f"needs {size} CUDA devices, found {torch.cuda.device_count()}")
    for found, _ in run_processes(size, tmp_path, _nccl):
        assert found == []


def _disagree(rank: int, folder: Path) -> Any:
    import dosa.distributed as dd

    given, how = given_keys("pages", rank, 2)
    weights = given[3].clone()
    given[3][5, 7] += rank
    found = []
    call: Any = {"sharding": how, "timeout": 30}
    try:
        dd.topk_over_keys(*given, K, **call)
    except dosa.Error as error:
        found.append(str(error))
    given[3] = weights
    topk = 5000  # more than a device takes: every rank fails alike
    try:
        dd.topk_over_keys(*given, topk, **call)
    except dosa.Error as error:
        found.append(str(error).partition(",")[0])
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    before = time.monotonic()
    try:
        dd.topk_over_keys(*given, K, **{**call, "timeout": 5})
    except dosa.Error as error:
        found.append(type(error).__name__)
    found.append(time.monotonic() - before < 20)
    return found


def test_ranks_that_disagree_or_are_lost(tmp_path: Path) -> None:
    ((found, _),) = run_processes(2, tmp_path, _disagree, lost=1)
    line = "weights: found other values on rank 1 than on rank 0, expected the same on all ranks"
    assert found == [line, "topk: found 5000", "RankError", True]
