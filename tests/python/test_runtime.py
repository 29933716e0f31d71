# SPDX-License-Identifier: Apache-2.0
"""Workspace, threads, progress: what happens around a call."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dosa
import oracle


def test_an_indexer_keeps_its_workspace_and_forgets_the_rest(trace: dosa.Trace) -> None:
    indexer = dosa.Indexer(threads=1)
    assert indexer.workspace_bytes == 0
    small = oracle.integers(1, queries=3, keys=80)
    expected = oracle.topk(small, 9)[0]
    np.testing.assert_array_equal(indexer.topk(*small, 9).indices, expected)
    first = indexer.workspace_bytes
    big = indexer.topk(*trace, 512).indices
    grown = indexer.workspace_bytes
    assert grown > first > 0
    np.testing.assert_array_equal(indexer.topk(*small, 9).indices, expected)
    assert indexer.workspace_bytes == grown
    np.testing.assert_array_equal(big, dosa.topk(*trace, 512).indices)
    indexer.release()
    assert indexer.workspace_bytes == 0
    np.testing.assert_array_equal(indexer.topk(*small, 9).indices, expected)


def test_the_workspace_stays_below_its_limit(trace: dosa.Trace) -> None:
    indexer = dosa.Indexer(workspace_mib=16, mode="base")
    indexer.topk(*trace, 2048)
    assert indexer.workspace_bytes <= 16 * 2**20


def test_threads_that_each_call(trace: dosa.Trace) -> None:
    expected = dosa.topk(*trace, 300).indices
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(dosa.topk, *trace, 300, threads=1) for _ in range(8)]
        for call in calls:
            np.testing.assert_array_equal(call.result().indices, expected)


def test_the_interpreter_runs_during_a_call(trace: dosa.Trace) -> None:
    """With no switches of its own, it goes to another thread only where a call gives it away."""
    interval = sys.getswitchinterval()
    go, ran = threading.Event(), []

    def wait() -> None:
        go.wait()
        ran.append(True)

    other = threading.Thread(target=wait)
    other.start()
    sys.setswitchinterval(1000)
    try:
        go.set()
        alone = not ran
        calls = 0
        while not ran and calls < 100:
            dosa.topk(*trace, 512, threads=1, mode="base")
            calls += 1
    finally:
        sys.setswitchinterval(interval)
        other.join()
    assert alone
    assert 0 < calls < 100


def test_one_indexer_serves_one_call_at_a_time(trace: dosa.Trace) -> None:
    indexer: dosa.Indexer
    refusals: list[str] = []

    def again(done: int, total: int) -> None:
        try:
            indexer.topk(*trace, 8)
        except dosa.ArgumentError as error:
            refusals.append(str(error))
        indexer.release()

    indexer = dosa.Indexer(progress=again)
    expected = dosa.topk(*trace, 64).indices
    np.testing.assert_array_equal(indexer.topk(*trace, 64).indices, expected)
    assert set(refusals) == {
        "Indexer: found a call in progress, expected one call at a time (one Indexer per thread)"
    }


def test_progress_counts_up_to_all_rows(trace: dosa.Trace) -> None:
    seen: list[tuple[int, int]] = []
    dosa.topk(*trace, 100, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (64, 64)
    assert seen == sorted(seen)
    seen.clear()
    dosa.verify(*trace, 100, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (64, 64)


def test_what_progress_raises_is_raised_once_the_call_has_ended(trace: dosa.Trace) -> None:
    calls = 0

    def fail(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        raise KeyError(done, total)

    indexer = dosa.Indexer(progress=fail)
    with pytest.raises(KeyError):
        indexer.topk(*trace, 100)
    assert calls == 1
    with pytest.raises(KeyError):
        indexer.verify(*trace, 100)


def _select(seed: int) -> list[list[int]]:
    inputs = oracle.integers(seed, queries=64)
    found: list[list[int]] = dosa.topk(*inputs, 5, threads=2).indices.tolist()
    return found


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes(method: str) -> None:
    """A forked child may call with several threads though its parent has done so before."""
    expected = [_select(1), _select(2)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_select, [1, 2]).get(timeout=120) == expected


def test_import_is_light() -> None:
    """No torch, no numpy, no dataclasses; the time is printed, not judged."""
    code = (
        "import sys, time; before = time.perf_counter(); import dosa; "
        "took = time.perf_counter() - before; "
        "print(took, *(n for n in ('numpy', 'torch', 'dataclasses') if n in sys.modules))"
    )
    best = float("inf")
    for _ in range(3):
        output = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
        assert output[1:] == []
        best = min(best, float(output[0]))
    print(f"import dosa: {best * 1000:.1f} ms")
