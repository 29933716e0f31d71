# SPDX-License-Identifier: Apache-2.0
"""Sections about speed: the grid of configurations, traces, and where screening starts to pay."""

from __future__ import annotations

from dosa.report.blocks import Block, Figure, Section, Table, Text, Value
from dosa.report.charts import Series, dot_plot, line_chart, style_of
from dosa.report.data import Data, Entry, keys_text
from dosa.report.statistics import Range, geometric_mean, median
from dosa.report.words import percent, significant, times


def grid(data: Data) -> Section:
    """Every configuration: `auto` against the ways to score every key."""
    section = Section("grid", "1. Every configuration")
    entries = data.entries("grid")
    if not entries:
        return section
    section.blocks = [
        Text(
            "Every input at every length and number of query rows, prepared and answered in one "
            "call: the preparation of queries and keys is part of every call."
            + (" Section 10 says how much of a call it is." if data.on_device else "")
        ),
        *_dots("grid", entries),
        _table("All configurations.", entries),
        *_peers(entries),
    ]
    return section


def traces(data: Data) -> Section:
    """Files that the user gave."""
    section = Section("traces", "1b. Traces")
    entries = data.entries("traces")
    if entries:
        section.blocks = [
            Text(
                "Files given with --trace, cut to their last keys and rows. Source: "
                + "; ".join(dict.fromkeys(entry.source for entry in entries))
                + "."
            ),
            *_dots("traces", entries),
            _table("All traces at all lengths.", entries),
            *_peers(entries),
        ]
    return section


def retrieval(data: Data) -> Section:
    """Documents in a row, and questions about them at the end."""
    section = Section("retrieval", "7. Retrieval over concatenated documents")
    entries = data.entries("retrieval")
    if entries:
        section.blocks = [
            Text(
                "Held-out documents in a row, and at the end questions: each repeats the "
                "beginning of a passage far back, and its rows look for what follows there "
                "(bench/retrieval.py). The small trained indexers of the traces scored them. "
                "Only the last rows, the questions, are queries. Source: "
                + "; ".join(dict.fromkeys(entry.source for entry in entries))
                + "."
            ),
            *_dots("retrieval", entries),
            _table("All lengths.", entries),
            *_peers(entries),
        ]
    return section


def crossover(data: Data) -> Section:
    """Speed against the number of keys."""
    section = Section("crossover", "5. Where screening starts to pay")
    entries = data.entries("crossover")
    for variant in dict.fromkeys(entry.variant for entry in entries):
        section.blocks += _crossing(variant, [e for e in entries if e.variant == variant])
    return section


def _dots(name: str, entries: list[Entry]) -> list[Figure]:
    """One figure for each number of heads."""
    several = len({entry.heads for entry in entries}) > 1
    figures = []
    for heads in dict.fromkeys(entry.heads for entry in entries):
        mine = [entry for entry in entries if entry.heads == heads]
        others = ["base", "full", *dict.fromkeys(peer for e in mine for peer in e.peers)]
        rows = []
        for entry in mine:
            ranges = [
                (f"over {other}", one)
                for other in others
                if (one := entry.speedup("auto", other)) is not None
            ]
            rows.append((entry.label, ranges))
        sentence = (
            "How many times as fast the default mode, auto, is as the ways to score every key"
            + (f", {heads} heads" if several else "")
            + ": right of the line at 1 it is faster, left of it slower. Marks are medians, bars "
            "reach from the least to the greatest repetition."
        )
        title = f"auto, {heads} heads: times as fast as {', '.join(others)}"
        chart = dot_plot(title, "times as fast (logarithmic)", rows)
        figures.append(Figure(f"{name}-{heads}" if several else name, sentence, chart))
    return figures


def _table(caption: str, entries: list[Entry]) -> Table:
    fixed = list(dict.fromkeys(name for entry in entries for name in entry.fixed))
    modes = [
        name
        for name in ("base", "full", "sgemm", "auto", *fixed)
        if any(name in entry.modes for entry in entries)
    ]
    rows: list[list[str | Value]] = []
    for entry in entries:
        row: list[str | Value] = [entry.label]
        row += [_milliseconds(entry, name) for name in modes]
        row += [times(entry.speedup("auto", "base")), times(entry.speedup("auto", "full"))]
        row += [percent(_survival(entry, name)) for name in ("auto", *fixed)]
        row += [Value("raw", cell=entry.cell)]
        rows.append(row)
    columns = ["input, keys x queries", *(f"{name}, ms" for name in modes)]
    columns += ["auto over base", "auto over full"]
    columns += [*(f"scored, {name}" for name in ("auto", *fixed)), ""]
    return Table(
        caption + " Times are medians of one call; in brackets the least and the greatest of "
        "the repetitions' ratios. 'Scored' is the share of the visible keys that had to be "
        "scored with all heads; less is better.",
        columns,
        rows,
    )


def _milliseconds(entry: Entry, name: str) -> str:
    return significant(entry.modes[name].milliseconds) if name in entry.modes else "-"


def _survival(entry: Entry, name: str) -> float | None:
    return entry.modes[name].survival if name in entry.modes else None


def _peers(entries: list[Entry]) -> list[Block]:
    """Compare with libraries of somebody else, where any were given."""
    rows: list[list[str | Value]] = []
    for entry in entries:
        for name in entry.peers:
            common = entry.modes[name].fields["ids_in_common"]
            row: list[str | Value] = [entry.label, name, _milliseconds(entry, name)]
            row += [times(entry.speedup("auto", name)), f"{100 * common:.3f}%"]
            rows.append([*row, Value("raw", cell=entry.cell)])
    if not rows:
        return []
    columns = ["input, keys x queries", "peer", "ms", "auto over it", "ids in common", ""]
    caption = (
        "Somebody else's libraries, given with --peer. Their arithmetic is their own, so that "
        "ids near the threshold may differ; 'in common' is the share of our ids that they "
        "returned as well."
    )
    return [Table(caption, columns, rows)]


def _crossing(variant: str, entries: list[Entry]) -> list[Block]:
    entries = sorted(entries, key=lambda entry: entry.keys)
    modes = [
        name
        for name in ("base", "full", "screen", "dosa", "auto", *entries[0].peers)
        if name in entries[0].modes
    ]
    faster = [name for name in ("dosa", "auto") if name in modes]
    series = []
    for name in modes:
        points = [
            (float(entry.keys), one.middle)
            for entry in entries
            if (one := entry.speedup(name, entry.best)) is not None
        ]
        series.append(
            Series(name, style_of(name), points, dashed=name in ("base", "full", *entries[0].peers))
        )
    queries = entries[0].queries
    sentence = (
        f"{variant}, {queries} query rows: how many times as fast each mode is as the better of "
        "base and full at the same length. Above the line at 1 leaving heads out pays; auto "
        f"should never lie below it. {_first_gain(entries)}"
    )
    chart = line_chart(
        f"{variant}: times as fast as the better of base and full, by keys",
        ("keys", "times as fast"),
        series,
        marks=(lambda x: keys_text(int(x)), lambda y: f"{y:.3g}"),
        reference=1.0,
    )
    rows = [
        [
            keys_text(entry.keys),
            *(_milliseconds(entry, name) for name in modes),
            entry.best,
            *(times(entry.speedup(name, entry.best)) for name in faster),
            *(times(entry.speedup("auto", peer)) for peer in entry.peers),
            Value("raw", cell=entry.cell),
        ]
        for entry in entries
    ]
    columns = ["keys", *(f"{name}, ms" for name in modes), "better of base, full"]
    columns += [f"{name} over it" for name in faster]
    columns += [*(f"auto over {peer}" for peer in entries[0].peers), ""]
    slug = variant.replace(":", "-")
    return [
        Figure(f"crossover-{slug}", sentence, chart),
        Table(f"{variant}: the same in numbers.", columns, rows),
    ]


def _first_gain(entries: list[Entry]) -> str:
    """Say from which length on auto is faster in every repetition, and its worst."""
    found = [(e, one) for e in entries if (one := e.speedup("auto", e.best)) is not None]
    if not found:
        return ""
    text = "At no length here was auto faster in every repetition."
    for n in range(len(found)):
        if all(one.low > 1 for _, one in found[n:]):
            text = (
                f"From {keys_text(found[n][0].keys)} keys on, auto was faster in every repetition."
            )
            break
    worst, one = min(found, key=lambda pair: pair[1].middle)
    return text + f" Its worst: {one.middle:.2f} times at {keys_text(worst.keys)} keys."


def summary_of(ranges: list[Range]) -> tuple[float, float, float]:
    """Return geometric mean, least and greatest of the medians."""
    middles = [one.middle for one in ranges]
    return geometric_mean(middles), min(middles), max(middles)


def typical_spread(entries: list[Entry]) -> float:
    """Return the median over all modes of how far the slowest repetition is from the median."""
    spreads = [
        max(mode.wall) / median(mode.wall) - 1
        for entry in entries
        for mode in entry.modes.values()
        if len(mode.wall) > 1
    ]
    return median(spreads) if spreads else 0.0
