#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that key-sharded calls exchange: the formula of docs/distributed.md against counts.

    python bench/distributed.py [--rows 256] [--topk 2048] [--seed 1]

Ranks are threads that merge candidates as `dosa.distributed` does. Their candidates are drawn: the
K best of n independent scores, without drawing n of them, so that 100 million keys take no time.
"alike": scores of all shards have one distribution. "skewed": one rank holds all winners.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import dosa.distributed as dd
from dosa import _rounds
from dosa._exchange import Exchange
from dosa._shards import quantile_ranks

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python"))
from ranks import ThreadTransport, run_ranks

NOTE = 120  # bytes in front of every message


def best_of(rng: np.random.Generator, rows: int, keys: int, kept: int) -> np.ndarray:
    """Return the `kept` greatest of `keys` uniform numbers, greatest first, as log(1 - u)."""
    kept = min(kept, keys)
    steps = rng.exponential(size=(rows, kept)) / (keys - np.arange(kept))
    return -np.log(np.cumsum(steps, axis=1))


def draw(seed: int, rank: int, size: int, keys: int, rows: int, kept: int, skewed: bool):
    """Return the candidates of one rank."""
    rng = np.random.default_rng([seed, rank])
    scores = best_of(rng, rows, keys // size, kept).astype(np.float32)
    if skewed and rank == 0:
        scores += 100
    ids = np.sort(rng.integers(0, keys // size, scores.shape), axis=1) + rank * (keys // size)
    return scores, ids.astype(np.int32)


def predicted(size: int, kept: int, candidates: float, rows: int, result: str) -> float:
    """Return the bytes that a rank receives per row, without the notes."""
    places = len(quantile_ranks(kept, size))
    last = {"all": 4 * kept, "local": 8, "rows": 0}[result]
    slice_rows = -(-rows // size) * size / rows  # slices are padded to the longest
    share = (size - 1) / size
    return share * (4 * places + 4 * slice_rows + 4 + 8 * candidates / size + last * slice_rows)


def measured(arguments: argparse.Namespace, size: int, keys: int, skewed: bool, result: str):
    """Return (mean bytes received per row and rank without notes, most, rounds, candidates)."""
    rows, kept = arguments.rows, arguments.topk
    sent = []

    def work(transport: ThreadTransport) -> dd.Traffic:
        exchange = Exchange(transport)
        scores, ids = draw(arguments.seed, transport.rank, size, keys, rows, kept, skewed)
        wanted = _rounds.Wanted(kept, "id", False, result)
        _rounds.merge_ranks(exchange, scores, ids, wanted)
        return exchange.traffic

    count = _rounds.count_reaching

    def counting(*inputs):
        found = count(*inputs)
        sent.append(found.sum() / rows)
        return found

    _rounds.count_reaching = counting
    try:
        traffic = run_ranks(size, work)
    finally:
        _rounds.count_reaching = count
    received = [(one.received - one.rounds * NOTE * (size - 1)) / rows for one in traffic]
    return np.mean(received), max(received), traffic[0].rounds, sum(sent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--topk", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    _rounds.DIRECT_BYTES = -1
    print(f"{arguments.rows} rows, K = {arguments.topk}; bytes received per row and rank")
    print("ranks keys        shards  result  gather-all  formula  counted   most  rounds  sent/K")
    for size, keys in ((2, 2**20), (4, 2**20), (8, 2**20), (8, 10**8), (16, 10**8), (64, 10**8)):
        for skewed in (False, True):
            for result in ("all", "local"):
                mean, most, rounds, candidates = measured(arguments, size, keys, skewed, result)
                formula = predicted(size, arguments.topk, candidates, arguments.rows, result)
                print(
                    f"{size:5d} {keys:<11d} {'skewed' if skewed else 'alike':7s} {result:7s} "
                    f"{8 * arguments.topk * (size - 1):10d} {formula:8.0f} {mean:8.0f} {most:6.0f} "
                    f"{rounds:7d} {candidates / arguments.topk:7.2f}"
                )


if __name__ == "__main__":
    main()
