# SPDX-License-Identifier: Apache-2.0
"""Sections on what other programs of this project measured: decode steps and whole models.

Their files are copied beside the raw results: JSON objects, or lines of them, as
`bench/gpu/decode` and `bench/prefill_transformers.py` write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dosa.report.blocks import Block, Figure, Section, Table, Text, Value
from dosa.report.charts import Series, line_chart
from dosa.report.data import Data, keys_text
from dosa.report.statistics import Range, median, ratios
from dosa.report.words import significant, times

DECODE, MODEL = "decode", "model"
_OURS, _PEER = "witnesses", "peer"
_STEP = {
    "witnesses": "with witnesses",
    "none": "without",
    "useless": "with useless witnesses",
    "records": "by records",
    "peer": "peer",
}


def decode(data: Data) -> Section:
    """Latency of a decode step by length, number of requests and heads."""
    section = Section("decode", "6b. Decode")
    steps = [one for one in data.outside(DECODE) if one.get("us", {}).get(_OURS)]
    if not steps:
        return section
    steps.sort(key=lambda one: (one["heads"], one["batch"], one["keys"]))
    names = [name for name in _STEP if any(name in one["us"] for one in steps)]
    section.blocks = [
        Text(
            "One decode step selects for one new row of each request, over a paged cache. With "
            "witnesses: the winners of the step before, carried over. Useless: some other keys "
            "in their place. Peer: somebody else's kernels for paged scores and Top-K, in the "
            "same process. Measured by bench/gpu/decode on the device, by a build of its own."
        ),
        *_decode_charts(steps),
        Table(
            "Microseconds of a step, medians; in brackets the least and the greatest ratio.",
            [
                "keys x requests, heads",
                *(f"{_STEP[name]}, us" for name in names),
                "over the peer",
                "winners kept from the step before",
                "",
            ],
            [_step_row(one, names) for one in steps],
        ),
    ]
    return section


def decode_ratios(data: Data, keys: int) -> list[float]:
    """Return how many times as fast as the peer one request is at a length, by heads."""
    return [
        one.middle
        for step in data.outside(DECODE)
        if step.get("batch") == 1 and step.get("keys") == keys
        if (one := _over_peer(step)) is not None
    ]


def _over_peer(step: dict[str, Any]) -> Range | None:
    us = step.get("us", {})
    return ratios(us[_PEER], us[_OURS]) if us.get(_OURS) and us.get(_PEER) else None


def _step_row(step: dict[str, Any], names: list[str]) -> list[str | Value]:
    row: list[str | Value] = [f"{keys_text(step['keys'])} x {step['batch']}, {step['heads']}"]
    row += [significant(median(step["us"][n])) if step["us"].get(n) else "-" for n in names]
    kept = step.get("overlap")
    row += [times(_over_peer(step)), "-" if kept is None else f"{100 * kept:.0f}%"]
    return [*row, Value("raw", file=step["file"])]


def _decode_charts(steps: list[dict[str, Any]]) -> Iterable[Block]:
    for heads in sorted({one["heads"] for one in steps}):
        series = []
        for n, batch in enumerate(sorted({one["batch"] for one in steps})):
            points = [
                (float(one["keys"]), ratio.middle)
                for one in steps
                if one["heads"] == heads and one["batch"] == batch
                if (ratio := _over_peer(one)) is not None
            ]
            if points:
                series.append(Series(f"{batch} request" + "s" * (batch > 1), n, points))
        if not series or len({x for one in series for x, _ in one.points}) < 2:
            continue
        sentence = (
            f"{heads} heads: how many times as fast a step with witnesses is as the peer's, by "
            "keys; above the line at 1 is faster."
        )
        chart = line_chart(
            f"Decode steps, {heads} heads: times as fast as the peer",
            ("keys", "times as fast"),
            series,
            marks=(lambda x: keys_text(int(x)), lambda y: f"{y:.3g}"),
            reference=1.0,
        )
        yield Figure(f"decode-{heads}", sentence, chart)


def model(data: Data) -> Section:
    """Time to the first token of small models, as they are and patched."""
    section = Section("model", "8. Whole models")
    runs = [one for one in data.outside(MODEL) if {"kind", "side", "context"} <= set(one)]
    if not runs:
        return section
    section.blocks.append(
        Text(
            "Prefill of small models of the transformers library with random weights (4 layers, 3 "
            "or 4 of them with an indexer), by bench/prefill_transformers.py: how long until the "
            "first token, and the peak of memory above that of the loaded model. 'unpatched' is "
            "the library's own selection, 'native' and 'fp8' are ours in its arithmetic and in "
            "e4m3. A model this small has little to do beside its indexers, so these are no "
            "figures for a real one."
        )
    )
    for kind in dict.fromkeys(one["kind"] for one in runs):
        section.blocks += _model_blocks(kind, [one for one in runs if one["kind"] == kind])
    return section


def model_ratio(data: Data, kind: str) -> str:
    """Say how many times as fast `fp8` is as the unpatched model, where both ran longest."""
    runs = [one for one in data.outside(MODEL) if one.get("kind") == kind and "seconds" in one]
    least: dict[tuple[str, int], float] = {}
    for one in runs:
        at = (str(one["side"]).split()[0], int(one["context"]))  # chunked or not, the faster
        least[at] = min(one["seconds"], least.get(at, one["seconds"]))
    both = [context for side, context in least if side == "fp8" and ("unpatched", context) in least]
    if not both:
        return ""
    longest = max(both)
    ratio = least["unpatched", longest] / least["fp8", longest]
    return f"{ratio:.2f} at {keys_text(longest)} ({kind}, 4 layers)"


def _model_blocks(kind: str, runs: list[dict[str, Any]]) -> list[Block]:
    buffers = len({one.get("buffer_mib") for one in runs})
    labels = [_side(one, buffers > 1) for one in runs]
    series = []
    for n, label in enumerate(dict.fromkeys(labels)):
        seconds: dict[float, list[float]] = {}
        for one, name in zip(runs, labels, strict=True):
            if name == label and "seconds" in one:
                seconds.setdefault(float(one["context"]), []).append(one["seconds"])
        if seconds:
            points = [(context, median(found)) for context, found in sorted(seconds.items())]
            series.append(Series(label, n % 8, points))
    rows: list[list[str | Value]] = []
    for context in sorted({one["context"] for one in runs}):
        for one in runs:
            if one["context"] != context:
                continue
            failed = str(one.get("failed", one.get("error", "failed")))
            rows.append(
                [
                    f"{keys_text(context)}, {_side(one, buffers > 1)}",
                    significant(one["seconds"]) if "seconds" in one else failed,
                    significant(one["gib"]) if "gib" in one else "-",
                    _share(one),
                    Value("raw", file=one["file"]),
                ]
            )
    blocks: list[Block] = []
    if series and len({x for one in series for x, _ in one.points}) > 1:
        chart = line_chart(
            f"{kind}: seconds to the first token, by context",
            ("tokens", "seconds"),
            series,
            marks=(lambda x: keys_text(int(x)), lambda y: f"{y:.3g}"),
        )
        sentence = f"{kind}: seconds to the first token (logarithmic), by context; less is better."
        blocks.append(Figure(f"model-{kind.replace('_', '-')}", sentence, chart))
    columns = ["context, side", "to the first token, s", "peak memory, GiB"]
    columns += ["indexers' share", ""]
    return [*blocks, Table(f"{kind}.", columns, rows, prose=frozenset({1}))]


def _side(run: dict[str, Any], with_buffer: bool) -> str:
    if with_buffer and "buffer_mib" in run:
        return f"{run['side']}, {run['buffer_mib']} MiB"
    return str(run["side"])


def _share(run: dict[str, Any]) -> str:
    share = run.get("indexer_share")
    return "-" if share is None else f"{100 * share:.1f}%"
