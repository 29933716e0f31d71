# SPDX-License-Identifier: Apache-2.0
"""The component study of the paper on generated workloads: docs/workloads.md, section Measured.

    python bench/workloads.py build/dosa --rows 8 --keys 131072 --seed 1001 --domains en zh code

Per layer and domain it makes rows that span the last 4,096 tokens (65 rows, 64 tokens apart),
builds the seed pool from the first of them, and reports for some of the other 64 how many keys
survive the certificate and its variants. NumPy only; scores and bounds in float64 by default.
"""

import argparse
import json
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOPK = 2048
RECENT = 2048
ROWS, STRIDE = 65, 64
CHUNK = 16384
RETAINED = {("glm52", 8): 6, ("glm52", 16): 14, ("dsv32", 16): 14, ("dsv32", 32): 30}
VARIANTS = ("full", "none", "all", "strength", "no projection")


def e4m3_values():
    """Return the values of the 256 codes (NaN codes are not used)."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 512, (8 + mantissa) * 2.0 ** (exponent - 10))
    return np.where(codes & 128, -value, value)


@dataclass
class Trace:
    """One generated workload."""

    q: np.ndarray  # (Q, H, D)
    k: np.ndarray  # (N, D), the key scale multiplied in
    norm: np.ndarray  # (N,)
    w: np.ndarray  # (Q, H)
    end: np.ndarray  # (Q,)

    def scores(self, row):
        """Return the scores of the keys that `row` sees."""
        out = np.empty(self.end[row])
        for a in range(0, len(out), CHUNK):
            x = self.k[a : min(a + CHUNK, len(out))] @ self.q[row].T
            out[a : a + CHUNK] = np.maximum(x, 0) @ self.w[row]
        return out


def read(path, dtype):
    """Read a safetensors file that the command wrote."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])

    def tensor(name, kind):
        begin, end = header[name]["data_offsets"]
        count = (end - begin) // np.dtype(kind).itemsize
        flat = np.frombuffer(raw, kind, offset=8 + size + begin, count=count)
        return flat.reshape(header[name]["shape"])

    values = e4m3_values().astype(dtype)
    k = values[tensor("k", "u1")] * tensor("k_scale", "<f4").astype(dtype)[:, None]
    norm = np.sqrt(np.einsum("nd,nd->n", k, k))
    q = values[tensor("q", "u1")]
    return Trace(q, k, norm, tensor("weights", "<f4").astype(dtype), tensor("k_end", "<i4"))


def best(scores):
    """Return the K best keys and the K-th score."""
    ids = np.argpartition(-scores, TOPK - 1)[:TOPK]
    return ids, scores[ids].min()


def bounds(trace, row, seeds, r, variant):
    """Return U of every visible key (E6), by the paper's rules; p_h on `seeds`."""
    q, w = trace.q[row], trace.w[row]
    length = np.linalg.norm(q, axis=1)
    p = (trace.k[seeds] @ q.T > 0).mean(axis=0)
    positive, negative = np.flatnonzero(w > 0), np.flatnonzero(w < 0)
    if len(positive) <= r:
        priority = -w * length * (1 if variant == "strength" else np.minimum(p, 1 - p))
        extra = negative[np.argsort(-priority[negative], kind="stable")]
        retained = np.concatenate([positive, extra[: r - len(positive)]])
    else:
        retained = positive[np.argsort(-(w * length)[positive], kind="stable")[:r]]
    folded, allowance = w[retained].copy(), 0.0
    for h in np.setdiff1d(positive, retained):
        beta = np.maximum(0, q[retained] @ q[h] / length[retained] ** 2)
        if variant == "no projection":
            beta[:] = 0
        rest = np.linalg.norm(q[h] - beta[:, None] * q[retained], axis=1)
        j = rest.argmin()
        folded[j] += w[h] * beta[j]
        allowance += w[h] * rest[j]
    omitted = np.setdiff1d(negative, retained)
    chosen = {"none": omitted[:0], "all": omitted}.get(variant, omitted[p[omitted] >= 0.5])
    aggregate = -w[chosen] @ q[chosen]
    out = np.empty(trace.end[row])
    for a in range(0, len(out), CHUNK):
        k = trace.k[a : min(a + CHUNK, len(out))]
        u = np.maximum(k @ q[retained].T, 0) @ folded - np.maximum(k @ aggregate, 0)
        out[a : a + len(k)] = u + allowance * trace.norm[a : a + len(k)]
    return out


def study(trace, r, num_rows):
    """Return one dict per sampled row: survival in percent by variant, and what explains it."""
    first = trace.scores(0)
    recent = np.arange(max(0, len(first) - RECENT), len(first))
    pool = np.union1d(best(first)[0], recent)
    result = []
    for row in np.linspace(1, ROWS - 1, num_rows).astype(int):
        scores = trace.scores(row)
        order = np.argsort(-scores[pool], kind="stable")[:TOPK]
        tau, seeds = scores[pool[order[-1]]], pool[order]
        winners, true_tau = best(scores)
        many = (trace.w[row] > 0).sum() > r
        found = {"pool overlap": 100 * np.isin(winners, pool).mean()}
        for variant in VARIANTS:
            if variant == "no projection" and not many:
                found[variant] = found["full"]
                continue
            u = bounds(trace, row, seeds, r, variant)
            found[variant] = 100 * (u >= tau).mean()
            if variant == "full":
                if (u < scores - 1e-5 * np.abs(scores).max()).any():
                    raise RuntimeError("a bound lies below its score")
                found["true tau"] = 100 * (u >= true_tau).mean()
        found["above tau"] = 100 * (scores >= tau).mean()
        found["near zero"] = 100 * (np.abs(scores) < 0.01 * true_tau).mean()
        result.append(found)
    return result


def generate(args, path, layer, domain, queries, stride, keys):
    """Run `dosa gen`."""
    command = [args.dosa, "gen", args.kind, "--rows", args.rows, "--seed", args.seed]
    command += ["--layer", layer, "--domain", domain, "--queries", queries, "--stride", stride]
    command += ["--keys", keys, "-o", path]
    subprocess.run([str(x) for x in command], check=True, stdout=subprocess.DEVNULL)


def mean(cells):
    """Return the mean of dicts with the same keys."""
    return {name: float(np.mean([cell[name] for cell in cells])) for name in cells[0]}


def measure(args, path, layer, domain, r):
    """Return one line of the table."""
    dtype = np.float32 if args.float32 else np.float64
    generate(args, path, layer, domain, ROWS, STRIDE, args.keys)
    cell = mean(study(read(path, dtype), r, args.sample))
    # Weights do not depend on the keys: few of those are needed for statistics of many rows.
    generate(args, path, layer, domain, 2048, 1, 8192)
    positive = (read(path, dtype).w > 0).sum(axis=1)
    cell |= {"rows over r": 100 * float((positive > r).mean()), "positive": float(positive.mean())}
    generate(args, path, layer, domain, 2, 1, args.keys)
    pair = read(path, dtype)
    one, two = (best(pair.scores(row))[0] for row in (0, 1))
    return cell | {"next overlap": 100 * float(np.isin(two, one).mean())}


def show(name, cell):
    """Print one line of the table."""
    print(f"{name:<10}" + "".join(f"{value:9.2f}" for value in cell.values()), flush=True)


def main():
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dosa", help="the dosa command")
    parser.add_argument("--kind", default="glm52", choices=["glm52", "dsv32"])
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--keys", type=int, default=131072)
    parser.add_argument("--seed", type=int, default=1001)
    parser.add_argument("--layers", type=int, nargs="+", default=list(range(21)))
    parser.add_argument("--domains", nargs="+", default=["en"])
    parser.add_argument("--sample", type=int, default=8, help="rows per layer and domain, of 64")
    parser.add_argument("--float32", action="store_true", help="faster; rounding errors near 1e-6")
    args = parser.parse_args()
    r = RETAINED[args.kind, args.rows]
    everything = []
    with tempfile.TemporaryDirectory() as folder:
        for domain in args.domains:
            cells = []
            for layer in args.layers:
                cells.append(measure(args, Path(folder) / "trace", layer, domain, r))
                if len(cells) == 1 and not everything:
                    print(f"{'%':<10}" + "".join(f"{name[:8]:>9}" for name in cells[0]))
                show(f"{domain} {layer}", cells[-1])
            show(f"{domain} mean", mean(cells))
            everything += cells
    show("mean", mean(everything))


if __name__ == "__main__":
    main()
