# SPDX-License-Identifier: Apache-2.0
"""Selection of torch tensors on a CUDA device against dense scores and torch.topk.

    python bench/python_device.py [--out FILE.json] [--shape 4096x131072 ...]

Inputs are normal values as in DeepGEMM's tests, which no bound prunes: the hard case. Printed: the
median and the spread of event times after a warm-up, whether the ids are those of the scores, the
same for merging lists, and the time that one call takes the host's Python.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import dosa
import dosa.torch

K = 2048
HEADS, DIM = 32, 128
CHUNK_CELLS = 1 << 31  # of dense scores held at a time: 8 GiB


def inputs(queries: int, keys: int) -> list[Any]:
    """Return q, k, k_scale, weights and causal windows."""
    torch.manual_seed(1)
    q = torch.randn((queries, HEADS, DIM), device="cuda").to(torch.float8_e4m3fn)
    k = torch.randn((keys, DIM), device="cuda")
    scale = k.abs().amax(1).clamp(min=1e-4) / 448
    codes = (k / scale[:, None]).to(torch.float8_e4m3fn)
    weights = torch.randn((queries, HEADS), device="cuda")
    end = torch.arange(queries, dtype=torch.int32, device="cuda") + keys - queries + 1
    return [q, codes, scale, weights, torch.zeros_like(end), end]


def dense(given: list[Any]) -> Any:
    """Return the ids of all scores by torch.topk, in chunks of rows; ties in any order."""
    rows = max(1, CHUNK_CELLS // given[1].shape[0])
    found = []
    for begin in range(0, given[0].shape[0], rows):
        part = (begin, min(begin + rows, given[0].shape[0]))
        found.append(dosa.scores(*given, rows=part).topk(K, dim=1, sorted=False).indices)
    return torch.cat(found)


def timed(call: Callable[[], Any], repeats: int) -> list[float]:
    """Return milliseconds of each call, by events, after a warm-up."""
    call()
    torch.cuda.synchronize()
    samples = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end))
    return samples


def same_sets(given: list[Any], ids: Any, other: Any) -> bool:
    """Return whether rows differ at most where their scores are equal (torch.topk has no rule)."""
    for row in range(0, len(ids), max(1, len(ids) // 64)):
        scores = dosa.scores(*given, rows=(row, row + 1))[0]
        mine, theirs = (scores[i[row].long()].sort().values for i in (ids, other))
        if not torch.equal(mine, theirs):
            return False
    return True


def host_time(repeats: int = 300) -> dict[str, list[float]]:
    """Return microseconds that calls of a tiny problem keep the host."""
    given = inputs(64, 4096)
    indexer = dosa.Indexer(mode="base")
    calls = {
        "dosa.topk": lambda: dosa.topk(*given, K, mode="base"),
        "Indexer.topk": lambda: indexer.topk(*given, K),
        "torch.ops.dosa.topk": lambda: torch.ops.dosa.topk(*given, K, mode="base"),
    }
    found = {}
    for name, call in calls.items():
        samples = []
        for _ in range(repeats):
            begin = time.perf_counter()
            call()
            samples.append(1e6 * (time.perf_counter() - begin))
            torch.cuda.synchronize()
        found[name] = samples[repeats // 10 :]
    return found


def merge_times(lists: int, repeats: int, rows: int = 16384) -> dict[str, list[float]]:
    """Return milliseconds of merging lists of K keys, and of torch.topk over all, ids sorted."""
    scores = torch.rand((lists, rows, K), device="cuda")
    ids = torch.arange(K, dtype=torch.int32, device="cuda") * lists
    ids = ids + torch.arange(lists, dtype=torch.int32, device="cuda")[:, None, None]
    ids = ids.expand(lists, rows, K).contiguous()

    def others() -> tuple[Any, Any]:
        flat = scores.transpose(0, 1).reshape(rows, -1)
        values, place = flat.topk(K, dim=1, sorted=False)
        found, order = ids.transpose(0, 1).reshape(rows, -1).gather(1, place).sort(1)
        return found, values.gather(1, order)

    mine, theirs = dosa.merge_topk(scores, ids, K), others()
    same = (mine[0] == theirs[0]).all(1)  # torch.topk settles ties as it likes
    assert float(same.float().mean()) > 0.9
    assert torch.equal(mine[1].sort(1).values, theirs[1].sort(1).values)
    return {
        "dosa.merge_topk": timed(lambda: dosa.merge_topk(scores, ids, K), repeats),
        "torch.topk, sort by id": timed(others, repeats),
    }


def line(name: str, samples: list[float], unit: str) -> str:
    middle, spread = statistics.median(samples), max(samples) - min(samples)
    return f"  {name:<28} {middle:9.2f} {unit} (spread {spread:.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", nargs="+", default=["4096x131072", "16384x1048576"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    report["topk"], report["heads"] = K, HEADS
    for shape in given.shape:
        queries, keys = map(int, shape.split("x"))
        arrays = inputs(queries, keys)
        indexer = dosa.Indexer()
        ids = indexer.topk(*arrays, K).indices
        agree = same_sets(arrays, ids, dense(arrays))
        select = partial(indexer.topk, *arrays, K)
        times = {
            "Indexer.topk": timed(select, given.repeats),
            "dosa.scores + torch.topk": timed(partial(dense, arrays), max(2, given.repeats // 2)),
        }
        report[shape] = {"same sets": agree, "ms": times, "workspace": indexer.workspace_bytes}
        print(f"{shape}: same sets {agree}, workspace {indexer.workspace_bytes >> 20} MiB")
        for name, samples in times.items():
            print(line(name, samples, "ms"), flush=True)
        assert agree
    for lists in (2, 4, 8):
        report[f"merge of {lists} lists"] = merge_times(lists, given.repeats)
        print(f"16384 rows, {lists} lists of {K} keys:")
        for name, samples in report[f"merge of {lists} lists"].items():
            print(line(name, samples, "ms"), flush=True)
    report["host us"] = host_time()
    print("one call, host time:")
    for name, samples in report["host us"].items():
        print(line(name, samples, "us"))
    if given.out is not None:
        given.out.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
