# SPDX-License-Identifier: Apache-2.0
"""How many pages of a key cache could a decode step leave unread? docs/measurements.md, Decode.

    python bench/decode_summaries.py TRACE.safetensors... --rows 16 --kept 2048 256 32
    python bench/decode_summaries.py TRACE.safetensors... --kept 32 --blocks 8 4 2
    python bench/decode_summaries.py TRACE.safetensors... --witnesses 1 1.125 1.25 1.5 2 --rows 24

A page (or a block of 16 or 32 tokens) may be skipped where a bound on the scores of all its keys,
made from a summary of the page alone, lies below the K-th score of the row. The K-th score is the
true one, so that the shares are the most that any threshold could give. Bounds, all sound in exact
arithmetic (computed in float64, rounding ignored: in favour of the summaries):

    ball     centre c and radius r of the keys x. Per head q.x in [q.c - r|q|, q.c + r|q|]; and over
             all heads s(x) <= s(c) + r (sqrt(sum [u_g.u_h]+) over positive + negative heads),
             u_h = w_h q_h; the smaller of the two
    box      least and largest value of each coordinate, against the signs of q
    both     per head the tighter interval of ball and box, and the smaller total
    ideal    blocks that hold no winner: what no summary can exceed

Summaries take D + 2 numbers (ball), 2 D (box) or both; of each a byte, the radius two.
"""

import argparse
import json
import struct
from pathlib import Path

import numpy as np

BOUNDS = ("ball", "box", "both", "ideal")


def e4m3_values():
    """Return the values of the 256 codes (NaN codes are not used)."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 512, (8 + mantissa) * 2.0 ** (exponent - 10))
    return np.where(codes & 128, -value, value)


def read(path):
    """Read q, k (its scale multiplied in), weights and k_end of a trace."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    types = {"F8_E4M3": "u1", "F32": "<f4", "I32": "<i4"}

    def tensor(name):
        entry = header[name]
        begin, end = entry["data_offsets"]
        data = np.frombuffer(raw[8 + size + begin : 8 + size + end], types[entry["dtype"]])
        return data.reshape(entry["shape"])

    values = e4m3_values()
    k = values[tensor("k")] * tensor("k_scale")[:, None]
    return values[tensor("q")], k, tensor("weights").astype(float), tensor("k_end")


def intervals_of_ball(q, centre, radius):
    """Return the least and largest q.x of each head and block."""
    middle = centre @ q.T  # (blocks, H)
    reach = radius[:, None] * np.linalg.norm(q, axis=1)
    return middle - reach, middle + reach


def intervals_of_box(q, low, high):
    """Return the same from the extremes of each coordinate."""
    up, down = np.maximum(q, 0).T, np.minimum(q, 0).T
    return low @ up + high @ down, high @ up + low @ down


def bound(w, least, largest):
    """Return sum_h w_h [q_h.x]+ at its largest: positive heads high, negative ones low."""
    value = np.where(w > 0, largest, least)
    return np.maximum(value, 0) @ w


def joint_reach(q, w):
    """Return how fast the score may rise with the distance from a point."""
    reach = 0.0
    for sign in (1, -1):
        u = (np.maximum(sign * w, 0)[:, None] * q)[sign * w > 0]
        reach += np.sqrt(np.maximum(u @ u.T, 0).sum())
    return reach


def shares(q, w, scores, kept, summaries):
    """Return, per block size and bound, the share of the blocks that one row may skip."""
    threshold = np.partition(scores, -kept)[-kept]
    out = {}
    for size, (centre, radius, low, high) in summaries.items():
        n = len(scores) // size  # the last, partial block is always read
        best = scores[: n * size].reshape(n, size).max(1)
        ball = intervals_of_ball(q, centre[:n], radius[:n])
        box = intervals_of_box(q, low[:n], high[:n])
        lipschitz = np.maximum(centre[:n] @ q.T, 0) @ w + radius[:n] * joint_reach(q, w)
        u_ball = np.minimum(bound(w, *ball), lipschitz)
        u_box = bound(w, *box)
        tight = (np.maximum(ball[0], box[0]), np.minimum(ball[1], box[1]))
        u_both = np.minimum(bound(w, *tight), lipschitz)
        slack = 1e-9 * np.abs(scores).max()
        for name, u in (("ball", u_ball), ("box", u_box), ("both", u_both)):
            if (u < best - slack).any():
                raise AssertionError(f"{name}: a bound below a score")
            out[size, name] = (u < threshold).mean()
        out[size, "ideal"] = (best < threshold).mean()
    return out


def summarise(k, size):
    """Return centre, radius, least and largest coordinates of blocks of `size` keys."""
    n = len(k) // size
    blocks = k[: n * size].reshape(n, size, -1)
    low, high = blocks.min(1), blocks.max(1)
    best = None
    for centre in (blocks.mean(1), (low + high) / 2):
        radius = np.linalg.norm(blocks - centre[:, None], axis=2).max(1)
        if best is None:
            best = (centre, radius)
        else:
            closer = radius < best[1]
            best = (np.where(closer[:, None], centre, best[0]), np.where(closer, radius, best[1]))
    return (*best, low, high)


def print_witnesses(path, kept, capacities, steps):
    """Print how many keys reach the K-th best of what the step before left in a state.

    The last rows are steps. A state holds a step's winners and the best of its other witnesses.
    """
    q, k, weights, ends = read(path)
    k = k.astype(np.float32)
    rows = range(len(q) - steps, len(q))
    everything = [
        np.maximum(k[: ends[r]] @ q[r].astype(np.float32).T, 0) @ weights[r].astype(np.float32)
        for r in rows
    ]
    for capacity in capacities:
        size = int(capacity * kept)
        known = np.argsort(-everything[0], kind="stable")[:size]
        surplus, fresh = [], []
        for scores in everything[1:]:
            threshold = np.partition(scores[known], -kept)[-kept]
            surplus.append(int((scores >= threshold).sum()) - kept)
            winners = np.argsort(-scores, kind="stable")[:kept]
            fresh.append(len(np.setdiff1d(winners, known)))
            others = np.setdiff1d(known, winners)
            others = others[np.argsort(-scores[others], kind="stable")[: size - kept]]
            known = np.concatenate([winners, others])
        print(
            f"{path.stem[:24]:24} {len(k):8} {q.shape[1]:3} {kept:5} {capacity:6.3f} K  "
            f"beyond the winners: median {np.median(surplus):7.0f} most {max(surplus):6}  "
            f"winners unknown: {np.median(fresh):5.0f}"
        )


def main():
    """Print the shares for every trace, K, block size and bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--rows", type=int, default=16, help="query rows, spread over the trace")
    parser.add_argument("--blocks", type=int, nargs="+", default=[64, 32, 16], help="tokens")
    parser.add_argument("--kept", type=int, nargs="+", default=[2048, 256, 32])
    parser.add_argument("--witnesses", type=float, nargs="+", metavar="C", help="states of C K")
    arguments = parser.parse_args()
    if arguments.witnesses:
        for path in arguments.traces:
            print_witnesses(path, arguments.kept[0], arguments.witnesses, arguments.rows)
        return
    print(f"{'trace':24} {'N':>8} {'H':>3} {'K':>5} {'block':>5} ", *(f"{b:>7}" for b in BOUNDS))
    for path in arguments.traces:
        q, k, weights, ends = read(path)
        summaries = {size: summarise(k, size) for size in arguments.blocks}
        rows = np.unique(np.linspace(0, len(q) - 1, arguments.rows).astype(int))
        for kept in arguments.kept:
            found = []
            for row in rows:
                scores = np.maximum(k[: ends[row]] @ q[row].T, 0) @ weights[row]
                found.append(shares(q[row], weights[row], scores, kept, summaries))
            for size in arguments.blocks:
                mean = (np.mean([f[size, name] for f in found]) for name in BOUNDS)
                head = f"{path.stem[:24]:24} {len(k):8} {q.shape[1]:3} {kept:5} {size:5} "
                print(head, *(f"{100 * m:6.2f}%" for m in mean))


if __name__ == "__main__":
    main()
