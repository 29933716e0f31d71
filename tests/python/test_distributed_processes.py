# SPDX-License-Identifier: Apache-2.0
"""The calls over torch.distributed: processes, gloo, and ranks that fail."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from ranks import KINDS, cut, sharding

pytest.importorskip("torch")
pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.filterwarnings("default")

Work = Callable[[int, Path], Any]


def _start(rank: int, size: int, folder: Path, work: Work) -> None:
    """One process of a group: leaves what work returned or raised, and when."""
    import torch.distributed as dist

    wait = datetime.timedelta(seconds=60)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, world_size=size, rank=rank, timeout=wait)
    try:
        found = work(rank, folder)
    except Exception as error:
        found = (type(error).__name__, str(error))
    (folder / f"part{rank}").write_bytes(pickle.dumps((found, time.monotonic())))
    (folder / f"part{rank}").rename(folder / f"found{rank}")
    os._exit(0)  # a group with a lost rank cannot be closed in order


def run_processes(size: int, folder: Path, work: Work, lost: int = -1) -> list[Any]:
    """Return (result or (error's class, text), time) of every rank but the lost one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "dosa.distributed", "ranks"])
    ranks = [context.Process(target=_start, args=(r, size, folder, work)) for r in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        assert process.exitcode is not None, "a rank hangs"
    left = [rank for rank in range(size) if rank != lost]
    return [pickle.loads((folder / f"found{rank}").read_bytes()) for rank in left]


def _inputs() -> oracle.Inputs:
    return oracle.integers(77, queries=6, keys=400)


def _over_keys(kind: str, group: Any, rank: int, size: int, topk: int, **more: Any) -> Any:
    import torch

    import dosa.distributed as dd

    inputs = _inputs()
    own = cut(kind, 400, size)[rank]
    q, k, scale, weights, start, end = (
        torch.from_numpy(array)
        for array in (
            inputs.q,
            inputs.k[own],
            inputs.k_scale[own],
            inputs.weights,
            inputs.k_start,
            inputs.k_end,
        )
    )
    return dd.topk_over_keys(
        q.view(torch.float8_e4m3fn),
        k.view(torch.float8_e4m3fn),
        scale,
        weights,
        start,
        end,
        topk,
        sharding=sharding(kind, own),
        group=group,
        threads=1,
        **more,
    )


def _all_world_sizes(rank: int, folder: Path) -> Any:
    """World sizes 1 to 8 as subgroups of one world of 8, in every sharding; both protocols."""
    import torch.distributed as dist

    import dosa.distributed as dd
    from dosa import _rounds

    over_rows: Any = dd.topk_over_rows
    found = {}
    for size in range(1, 9):
        group = dist.new_group(list(range(size)))
        if rank >= size:
            continue
        for kind in KINDS:
            for direct in (-1, 2**40):
                _rounds.DIRECT_BYTES = direct
                one = _over_keys(kind, group, rank, size, 50, timeout=60, scores=True)
                found[size, kind, direct] = (one.indices.numpy(), one.scores.numpy())
        one = over_rows(*_inputs(), 50, group=group, scores=True, threads=1)
        found[size, "rows", 0] = (one.indices, one.scores)
    return found


def test_world_sizes_1_to_8(tmp_path: Path) -> None:
    ids, values = oracle.topk(_inputs(), 50)
    results = run_processes(8, tmp_path, _all_world_sizes)
    for rank, (found, _) in enumerate(results):
        assert isinstance(found, dict), found
        assert len(found) == (8 - rank) * (2 * len(KINDS) + 1)
        for case, (indices, scores) in found.items():
            assert indices.tobytes() == ids.tobytes(), (rank, case)
            np.testing.assert_array_equal(scores, values)


def _call_with_a_lost_rank(rank: int, folder: Path) -> Any:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return _over_keys("pages", None, rank, 3, 50, timeout=5)


def test_a_killed_rank(tmp_path: Path) -> None:
    before = time.monotonic()
    for found, when in run_processes(3, tmp_path, _call_with_a_lost_rank, lost=1):
        assert found[0] == "RankError"
        assert found[1].startswith("group: found ")
        assert when - before < 40  # the timeout, and starting three processes on a busy machine


def _call_with_a_late_rank(rank: int, folder: Path) -> Any:
    if rank == 1:
        time.sleep(6)
    before = time.monotonic()
    try:
        return _over_keys("pages", None, rank, 3, 50, timeout=2)
    except Exception as error:
        return (type(error).__name__, str(error), time.monotonic() - before)


def test_a_rank_that_stands_still(tmp_path: Path) -> None:
    """The others raise once their time is over; the late one finds the group broken."""
    for found, _ in run_processes(3, tmp_path, _call_with_a_late_rank):
        assert found[0] == "RankError", found
        assert found[2] < 5


def _call_with_wrong_shapes(rank: int, folder: Path) -> Any:
    import dosa.distributed as dd

    inputs = _inputs()
    queries = 5 if rank == 2 else 6
    return dd.topk_over_rows(
        inputs.q[:queries], inputs.k, inputs.k_scale, inputs.weights[:queries], topk=5
    )


def test_mismatched_shapes(tmp_path: Path) -> None:
    for found, _ in run_processes(3, tmp_path, _call_with_wrong_shapes):
        text = "Q: found 5 on rank 2 and 6 on rank 0, expected the same on all ranks"
        assert found == ("ArgumentError", text)


def test_no_group() -> None:
    import dosa
    import dosa.distributed as dd

    with pytest.raises(dosa.ArgumentError, match=r"^group: found no process group, expected"):
        dd.topk_over_rows(*_inputs(), 5)
