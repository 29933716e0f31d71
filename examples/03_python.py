# SPDX-License-Identifier: Apache-2.0
"""Select the best keys of a small real trace, and see what was not computed.

Run from the project's folder, after `pip install .`: python examples/03_python.py
"""

from pathlib import Path

import numpy as np

import dosa

K = 512
trace = dosa.load(Path(__file__).parents[1] / "tests/data/code_small.safetensors")

# The K best keys of every query: ascending ids, -1 behind the last.
result = dosa.topk(*trace, topk=K)
assert result.stats is not None  # on the host there are counts
spared = 1 - result.stats.fully_scored / result.stats.visible
print(f"{result.indices.shape[0]} queries, {trace.k.shape[0]} keys, K = {K}")
print(f"{spared:.0%} of the pairs of a query and a visible key were never scored in full")

# The same ids from all scores, the way it is done without DoSA: a (Q, N) array and a stable sort.
scores = dosa.scores(*trace)
best = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :K], axis=1)
print("same ids as from all scores:", np.array_equal(result.indices, best))

# Repeated calls: an Indexer keeps its workspace. Options change the work, never the ids.
indexer = dosa.Indexer(mode="dosa", order="score", threads=1)
by_score = indexer.topk(*trace, topk=K, scores=True)
assert by_score.scores is not None
print(f"best key of query 0: {by_score.indices[0, 0]}, score {by_score.scores[0, 0]:.4f}")
print(f"workspace: {indexer.workspace_bytes / 2**20:.1f} MiB")

# Every rejection audited against the exact score.
report = dosa.verify(*trace, topk=K)
print(f"{report.rejected} pairs rejected, {report.violations} of them wrongly")
