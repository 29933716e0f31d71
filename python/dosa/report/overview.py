# SPDX-License-Identifier: Apache-2.0
"""The answers that a reader comes for, before any figure."""

from __future__ import annotations

from dataclasses import dataclass

from dosa.report.blocks import Section, Table, Value
from dosa.report.data import Data, Entry, distinct, keys_text
from dosa.report.speed import summary_of, typical_spread
from dosa.report.statistics import Range
from dosa.report.words import times

_SPEED = ("grid", "traces", "retrieval", "crossover", "map")
_MOST_LOSSES = 12


@dataclass(frozen=True)
class Overview:
    """Questions with their answers, what came out, and where it loses."""

    answers: list[tuple[str, str]]
    results: list[str]
    losses: list[str]
    table: Table | None


def overview(data: Data) -> Overview:
    """Return what stands on top of the page."""
    lost = _losses(data)
    return Overview(_answers(data), _results(data), _loss_lines(data), _loss_table(lost))


def _answers(data: Data) -> list[tuple[str, str]]:
    entries = data.entries(*_SPEED, "ablation")
    sources = distinct(entry.source for entry in entries)
    repeats = sorted({len(mode.wall) for entry in entries for mode in entry.modes.values()})
    often = "no cell was measured"
    if repeats:
        often = (
            f"Each mode {repeats[0]} to {repeats[-1]} times for every input and shape, after one "
            "call that is not counted. Modes take turns within a repetition, so that whatever "
            "else the machine does meets all alike; ratios are formed within a repetition. Typical "
            f"slowest repetition: {100 * typical_spread(entries):.0f}% over the median. sgemm "
            "runs once where a call takes over a second."
        )
    if data.on_device:
        return _device_answers(data, sources, repeats)
    return [
        (
            "What is compared?",
            "Ways to find the K keys with the highest indexer scores of each query. base scores "
            "every key with every head, keeps the scores of a chunk of keys and selects. full "
            "does the same but keeps only scores that reach the best threshold so far. screen "
            "rejects keys by an upper bound from a few heads and keeps every survivor's score. "
            "dosa does both, with a fixed number of heads. auto, the default, chooses by shape "
            "and by a sample. sgemm is a baseline that shares no code with them: single-precision "
            "matrix products by OpenBLAS, then selection.",
        ),
        (
            "On what?",
            f"{'; '.join(data.fact('machine', 'processor')) or 'an unnamed processor'}, "
            f"{'; '.join(data.header('threads')) or '?'} threads. Inputs: "
            f"{'; '.join(sources) or 'none'}. 'glm52:8' and 'glm52:16' are two variants of the "
            "generator, for 8 and 16 screening rows; en, zh and code are its domains. No "
            "production activations are among them: those are not public.",
        ),
        ("How often?", often),
        (
            "What is exact?",
            "All modes return the same ids, bit for bit: the K best by the named score model "
            "(ieee: every dot product exact and rounded once), ties by lower id. The benchmark "
            "compares the ids of every mode before it times them and fails if any differ, so a "
            "number on this page is the time of a right answer. Timing, of course, is not exact.",
        ),
    ]


def _device_answers(data: Data, sources: list[str], repeats: list[int]) -> list[tuple[str, str]]:
    entries = data.entries(*_SPEED, "ablation")
    often = "no cell was measured"
    if repeats:
        often = (
            f"Each mode {repeats[0]} to {repeats[-1]} times for every input and shape, after one "
            "call that is not counted, with the L2 cache overwritten before each call. Modes take "
            "turns within a repetition; ratios are formed within a repetition. Typical slowest "
            f"repetition: {100 * typical_spread(entries):.1f}% over the median. Phases are from "
            "calls of their own."
        )
    return [
        (
            "What is compared?",
            "Ways to find the K keys with the highest indexer scores of each query. base scores "
            "every key with every head, stores the scores of a chunk of rows and selects. full "
            "keeps only scores that reach the best threshold so far. dosa rejects keys by an "
            "upper bound from R' screening rows and scores the survivors. auto, the default, "
            "chooses between them. Times are those of one complete call, preparation of queries "
            "and keys included, between two events on the device."
            + "".join(
                f" {peer} is somebody else's kernels for the same selection, called in turn with "
                "ours in the same process."
                for peer in dict.fromkeys(peer for entry in entries for peer in entry.peers)
            ),
        ),
        (
            "On what?",
            f"{'; '.join(data.header('device')) or 'an unnamed device'}. Inputs: "
            f"{'; '.join(sources) or 'none'}. 'glm52:8' and 'glm52:16' are two variants of the "
            "generator, for 8 and 16 screening rows; en, zh and code are its domains. No "
            "production activations are among them: those are not public.",
        ),
        ("How often?", often),
        (
            "What is exact?",
            "All modes return the same ids, bit for bit: the K best by the named score model "
            "(sm90: the scores of Hopper's FP8 tensor cores), ties by lower id. The benchmark "
            "compares the ids of every mode before it times them and fails if any differ, so a "
            "number on this page is the time of a right answer.",
        ),
    ]


def _results(data: Data) -> list[str]:
    lines = []
    entries = data.entries("grid", "traces", "retrieval")
    peers = dict.fromkeys(peer for entry in entries for peer in entry.peers)
    for over, words in (
        ("base", "base (scores every key, stores, selects)"),
        ("full", "full (scores every key, keeps few scores)"),
        ("sgemm", "sgemm (the independent baseline)"),
        *((peer, f"{peer} (somebody else's kernels)") for peer in peers),
    ):
        found = [one for e in entries if (one := e.speedup("auto", over)) is not None]
        if found:
            middle, least, most = summary_of(found)
            lines.append(
                f"auto against {words}: {middle:.2f} times as fast in the geometric mean over "
                f"{len(found)} configurations, {least:.2f} at worst, {most:.2f} at best."
            )
    return lines


def _against_best(entries: list[Entry], name: str) -> list[tuple[Entry, Range]]:
    return [(e, one) for e in entries if (one := e.speedup(name, e.best)) is not None]


def _losses(data: Data) -> list[tuple[Entry, str, str, Range]]:
    """Return where auto's median is slower than the better of base and full, worst first."""
    found = [
        (entry, "auto", entry.best, one)
        for entry, one in _against_best(data.entries(*_SPEED), "auto")
        if one.middle < 1
    ]
    return sorted(found, key=lambda item: item[3].middle)


def _loss_lines(data: Data) -> list[str]:
    lines = []
    entries = data.entries(*_SPEED)
    found = _against_best(entries, "auto")
    slower = [(e, one) for e, one in found if one.middle < 1]
    sure = [(e, one) for e, one in slower if one.below_one]
    if slower:
        worst, one = min(slower, key=lambda pair: pair[1].middle)
        lines.append(
            f"auto was slower than the better of base and full in {len(slower)} of {len(found)} "
            f"configurations of all sections by the median, in {len(sure)} of them in every "
            f"repetition. The worst: {one.middle:.2f} times as fast ({worst.label})."
        )
    elif found:
        lines.append(
            f"auto's median was never slower than the better of base and full, in {len(found)} "
            "configurations of all sections."
        )
    screened = [(e, x) for e in entries for name in e.fixed if (x := e.speedup(name, e.best))]
    fixed = [(e, one) for e, one in screened if one.middle < 1]
    if fixed:
        worst, one = min(fixed, key=lambda pair: pair[1].middle)
        lines.append(
            "Screening with a fixed number of heads (dosa) was slower than scoring every key in "
            f"{len(fixed)} of {len(screened)} measurements; the worst: {one.middle:.2f} "
            f"({worst.label}). This is why auto is the default."
        )
    simple = [(e, x) for e in entries if (x := e.speedup("auto", "sgemm")) is not None]
    beaten = [(e, x) for e, x in simple if x.middle < 1]
    if beaten:
        worst, one = min(beaten, key=lambda pair: pair[1].middle)
        lines.append(
            f"The independent baseline sgemm was faster than auto in {len(beaten)} of "
            f"{len(simple)}; the worst: {one.middle:.2f} ({worst.label})."
        )
    elif simple:
        lines.append(f"The independent baseline sgemm was never faster, in {len(simple)}.")
    lines += _peer_lines(entries)
    lines += _memory_line(data)
    lines.append(
        "On random data no bound rejects anything, and inputs of other models may lie closer to "
        "that than those measured here: try yours with --trace."
    )
    return lines


def _peer_lines(entries: list[Entry]) -> list[str]:
    lines = []
    for peer in dict.fromkeys(peer for entry in entries for peer in entry.peers):
        found = [(e, x) for e in entries if (x := e.speedup("auto", peer)) is not None]
        beaten = [(e, x) for e, x in found if x.middle < 1]
        if beaten:
            worst, one = min(beaten, key=lambda pair: pair[1].middle)
            longest = max(entry.keys for entry, _ in beaten)
            lines.append(
                f"{peer} was faster than auto in {len(beaten)} of {len(found)}, at up to "
                f"{keys_text(longest)} keys; the worst: {one.middle:.2f} ({worst.label})."
            )
        else:
            lines.append(f"{peer} was never faster, in {len(found)}.")
    return lines


def _memory_line(data: Data) -> list[str]:
    more = [
        (e.modes["auto"].fields["workspace_bytes"] / e.modes["base"].fields["workspace_bytes"], e)
        for e in data.entries("memory")
        if {"auto", "base"} <= set(e.modes)
    ]
    if not more or max(one for one, _ in more) <= 1:
        return []
    ratio, entry = max(more, key=lambda pair: pair[0])
    return [f"auto needs up to {ratio:.1f} times the workspace of base ({entry.label})."]


def _loss_table(lost: list[tuple[Entry, str, str, Range]]) -> Table | None:
    if not lost:
        return None
    rows: list[list[str | Value]] = [
        [f"{e.label}{_layer(e)}", best, times(one), Value("raw", cell=e.cell)]
        for e, _, best, one in lost[:_MOST_LOSSES]
    ]
    count = len(lost)
    shown = f"All {count}" if count <= _MOST_LOSSES else f"The {_MOST_LOSSES} worst of {count}"
    caption = (
        f"{shown} configurations in which auto's median is slower; below 1 is "
        "slower, in brackets the least and the greatest repetition."
    )
    return Table(caption, ["input, keys x queries", "better mode", "auto over it", ""], rows)


def _layer(entry: Entry) -> str:
    return f", layer {entry.layer}, seed {entry.seed}" if entry.layer >= 0 else ""


def not_here(data: Data) -> Section:
    """Name what a complete evaluation has and this page has not."""
    rows = _not_on_device(data) if data.on_device else _not_on_cpu()
    if not rows:
        return Section("not-here", "What is not on this page")
    return Section(
        "not-here",
        "What is not on this page",
        [Table("", ["part", "why"], rows, prose=frozenset({0, 1}))],
    )


def _not_on_cpu() -> list[list[str]]:
    return [
        ["7. Retrieval over concatenated documents", "needs a trace maker for long real texts"],
        [
            "8. Share of a prefill, time to first token, decode latency of a model",
            "a model of that size does not run on a CPU",
        ],
        [
            "10. Phases of a call against their floors",
            "the CPU engine mixes its phases tile by tile; docs/architecture.md has their shares "
            "by a profiler",
        ],
    ]


def _not_on_device(data: Data) -> list[list[str]]:
    rows = [
        [
            "2. screen, in the ablation",
            "on the device it is dosa: a survivor is written only if it reaches the threshold",
        ],
        [
            "3. Components of the certificate",
            "the device engine has one certificate; the page of a CPU has them",
        ],
    ]
    given = {
        "6b. Decode": (data.outside("decode"), "no results were given with --decode"),
        "7. Retrieval over concatenated documents": (
            data.entries("retrieval"),
            "no input was given with --retrieval",
        ),
        "8. Whole models": (data.outside("model"), "no results were given with --model"),
    }
    return rows + [[name, why] for name, (found, why) in given.items() if not found]
