# SPDX-License-Identifier: Apache-2.0
"""Counts of calls on a device, and the audit there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dosa
import oracle
from device_inputs import NEEDED, best, normal, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

K = 64


def windows(given: list[Any]) -> Any:
    keys = given[1].shape[0]
    return (given[5].clamp(0, keys) - given[4].clamp(0, keys)).clamp(min=0).cpu().numpy()


@pytest.mark.parametrize("mode", ["auto", "base", "full", "screen", "dosa"])
def test_counts_of_a_call(mode: Any) -> None:
    given = normal(40, 30_000)
    given[4][3] = given[5][3]  # an empty row
    counts = dosa.Counts()
    found = dosa.topk(*given, K, mode=mode, scores=True, counts=counts)
    assert (found.stats, found.rows) == (None, None)
    stats, rows = counts.read()
    visible = windows(given)
    np.testing.assert_array_equal(rows["visible"], visible)
    assert stats.rows == 40
    assert stats.visible == visible.sum()
    assert stats.short_rows == int((visible <= K).sum())
    for name in ("screened", "fully_scored", "records", "rounds"):
        assert rows[name].sum() == getattr(stats, name)
    assert 0 <= stats.screened <= stats.visible
    assert stats.screened == 0 or mode not in ("base", "full")
    _, values = best(dosa.scores(*given), given[4], given[5], K, "score")
    long = visible > K
    kth = values[:, K - 1].cpu().numpy()
    np.testing.assert_array_equal(rows["kth_score"][long], kth[long])


def test_counts_wait_for_the_stream_of_the_call() -> None:
    given = normal(70, 30_000)
    counts = dosa.Counts()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        dosa.topk(*given, K, counts=counts)
        assert not stream.query()
    assert counts.read()[0].visible == windows(given).sum()


def test_counts_of_every_replay() -> None:
    given = normal(30, 5000)
    counts = dosa.Counts()
    dosa.topk(*given, K, counts=counts)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = dosa.topk(*given, K, counts=counts).indices
    for first in (0, 100, 2500):
        given[4].fill_(first)
        graph.replay()
        torch.cuda.synchronize()
        assert counts.read()[0].visible == windows(given).sum()
        assert torch.equal(found, dosa.topk(*given, K).indices)


def test_counts_of_no_rows_and_of_nothing() -> None:
    counts = dosa.Counts()
    with pytest.raises(dosa.ArgumentError, match=r"^counts: found no call that was given them"):
        counts.read()
    given = normal(0, 500, causal=False)
    dosa.topk(*given, K, counts=counts)
    stats, rows = counts.read()
    assert (stats.rows, stats.visible, len(rows)) == (0, 0, 0)
    with pytest.raises(dosa.ArgumentTypeError, match=r"^counts: found bool, expected dosa.Counts"):
        dosa.topk(*given, K, counts=True)


def test_counts_of_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy")
    inputs = oracle.integers(2, 9, 32, 128, 700)
    counts = dosa.Counts()
    dosa.topk(*(cupy.asarray(array) for array in inputs), K, counts=counts)
    host = dosa.Counts()
    dosa.topk(*inputs, K, counts=host)
    assert isinstance(counts.stats_array, cupy.ndarray)
    assert counts.read()[0].visible == host.read()[0].visible
    np.testing.assert_array_equal(counts.read()[1]["visible"], host.read()[1]["visible"])


@pytest.mark.parametrize("heads", [32, 64])
def test_the_audit(heads: int) -> None:
    given = normal(50, 6000, heads)
    found = dosa.Indexer(mode="dosa").verify(*given, K)
    assert isinstance(found, dosa.DeviceVerification)
    assert (found.rows, found.rows_different, found.first_different) == (50, 0, -1)
    assert found.visible == windows(given).sum()
    assert 0 < found.bounded <= found.visible
    assert 0 <= found.rejected <= found.bounded
    assert found.violations == 0
    assert found.min_margin >= 0
    assert 0 <= found.witness_row < 50
    assert 0 <= found.witness_key < 6000
    assert found.witness_bound >= found.witness_score
    assert 0 < found.most_used <= 1
    assert found.seconds > 0


def test_the_audit_sees_what_is_still_being_written() -> None:
    """It works on the default stream, behind what the current stream has to do."""
    given = normal(20, 3000)
    late = [tensor.clone() for tensor in given]
    late[5].zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
        late[5].copy_(given[5])
        found = dosa.Indexer(mode="dosa").verify(*late, K)
    assert found.visible == windows(given).sum()


def test_the_audit_refuses_what_a_call_does() -> None:
    given = normal(8, 300)
    with pytest.raises(dosa.ArgumentError, match=r"^topk: found 4097, expected 1 to 4096"):
        dosa.verify(*given, 4097)
    with pytest.raises(dosa.UnsupportedError, match=r"^progress: found a function"):
        dosa.verify(*given, K, progress=print)
    with pytest.raises(dosa.ArgumentError, match=r"^k: found a tensor on cpu, expected"):
        dosa.verify(given[0], given[1].cpu(), *given[2:], K)
