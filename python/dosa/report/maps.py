# SPDX-License-Identifier: Apache-2.0
"""Sections about layers and memory."""

from __future__ import annotations

from dosa.report.blocks import Block, Figure, Section, Table, Text, Value
from dosa.report.charts import Series, heat_map, line_chart, style_of
from dosa.report.data import Data, Entry, keys_text
from dosa.report.words import megabytes, significant, times


def heat_maps(data: Data) -> Section:
    """Layer by input."""
    section = Section("map", "4. Layer by layer")
    entries = data.entries("map")
    if not entries:
        return section
    one = entries[0]
    repeats = min(len(mode.wall) for entry in entries for mode in entry.modes.values())
    section.blocks.append(
        Text(
            f"{len(entries)} cells of {one.queries} query rows and {keys_text(one.keys)} keys, "
            f"{repeats} repetitions each, all by the same build. With so few rows the cost of "
            "planning weighs more than in section 1."
        )
    )
    for over in ("base", "full"):
        section.blocks.append(_map(entries, over))
    section.blocks.append(_table(entries))
    return section


def faster_cells(entries: list[Entry], over: str) -> tuple[int, int, float]:
    """Return in how many cells auto's median is faster, of how many, and the largest ratio."""
    found = [one.middle for e in entries if (one := e.speedup("auto", over)) is not None]
    return sum(value > 1 for value in found), len(found), max(found, default=0.0)


def _map(entries: list[Entry], over: str) -> Figure:
    seeds = {entry.seed for entry in entries}
    columns = list(dict.fromkeys(_column(entry, len(seeds) > 1) for entry in entries))
    values: dict[tuple[int, str], float] = {}
    for entry in entries:
        one = entry.speedup("auto", over)
        if one is not None:
            values[entry.layer, _column(entry, len(seeds) > 1)] = one.middle
    rows = [
        (f"layer {layer}", [values.get((layer, column)) for column in columns])
        for layer in sorted({entry.layer for entry in entries})
    ]
    faster, count, most = faster_cells(entries, over)
    sentence = (
        f"How many times as fast auto is as {over}, medians: above 1 (blue) faster, below 1 "
        f"(orange) slower. Faster in {faster} of {count} cells; the largest is {most:.2f}."
    )
    title = f"auto over {over}, by layer and input"
    return Figure(f"map-{over}", sentence, heat_map(title, ("input", "layer"), columns, rows))


def _column(entry: Entry, with_seed: bool) -> str:
    seed = f" {entry.seed}" if with_seed else ""
    return f"{entry.variant.replace(':', ' :')} {entry.domain}{seed}"  # headings break at blanks


def _table(entries: list[Entry]) -> Table:
    rows: list[list[str | Value]] = []
    for entry in entries:
        row: list[str | Value] = [f"{entry.variant} {entry.domain} {entry.seed}, {entry.layer}"]
        row += [times(entry.speedup("auto", over)) for over in ("base", "full")]
        fixed = entry.speedup("dosa", entry.best)
        row.append("-" if fixed is None else f"{fixed.middle:.3f}")
        rows.append([*row, Value("raw", cell=entry.cell)])
    columns = ["input and seed, layer", "auto over base", "auto over full"]
    columns += ["dosa over the better", ""]
    return Table("Every cell of the maps.", columns, rows, folded=True)


def memory(data: Data) -> Section:
    """Bytes against the number of keys."""
    title = "6. Memory, and scaling to long contexts" if data.on_device else "6. Memory"
    section = Section("memory", title)
    entries = data.entries("memory")
    if not entries:
        return section
    section.blocks = [
        Text(
            "The library allocates nothing: the caller asks dosa_workspace_bytes() and brings that "
            "much. 'Measured' is how far the resident memory of the process rose during a call "
            "beyond inputs and outputs."
            if not data.on_device
            else "The library allocates nothing: the caller asks dosa_cuda_workspace_bytes() and "
            "brings that much device memory, at most 2 GiB by default."
        )
    ]
    for queries in sorted({entry.queries for entry in entries}):
        mine = sorted((e for e in entries if e.queries == queries), key=lambda e: e.keys)
        section.blocks += _memory_of(queries, mine)
        if data.on_device and len(mine) > 1:
            section.blocks += _scaling_of(queries, mine)
    return section


def _scaling_of(queries: int, entries: list[Entry]) -> list[Block]:
    """Time against the number of keys, to the longest context."""
    modes = [name for name in ("base", "full", "auto") if name in entries[0].modes]
    series = [
        Series(name, style_of(name), [(float(e.keys), e.modes[name].milliseconds) for e in entries])
        for name in modes
    ]
    sentence = (
        f"Scaling, {queries} query rows: ms of a call against the number of keys (both "
        "logarithmic); less is better."
    )
    chart = line_chart(
        f"Time by keys, {queries} query rows",
        ("keys", "milliseconds"),
        series,
        marks=(lambda x: keys_text(int(x)), lambda y: f"{y:.3g}"),
    )
    rows: list[list[str | Value]] = []
    for entry in entries:
        row: list[str | Value] = [keys_text(entry.keys)]
        row += [significant(entry.modes[name].milliseconds) for name in modes]
        row += [times(entry.speedup("auto", over)) for over in ("base", "full")]
        rows.append([*row, Value("raw", cell=entry.cell)])
    columns = ["keys", *(f"{name}, ms" for name in modes), "auto over base", "auto over full", ""]
    return [Figure("scaling", sentence, chart), Table("The same in numbers.", columns, rows)]


def _memory_of(queries: int, entries: list[Entry]) -> list[Block]:
    modes = [name for name in ("base", "full", "auto", "dosa") if name in entries[0].modes]
    series = [
        Series(
            name,
            style_of(name),
            [(float(e.keys), e.modes[name].fields["workspace_bytes"] / (1 << 20)) for e in entries],
        )
        for name in modes
    ]
    matrix = [(float(e.keys), matrix_bytes(e) / (1 << 20)) for e in entries]
    series.append(Series("a matrix of all scores", style_of("", 0), matrix, dashed=True))
    sentence = (
        f"{queries} query rows: workspace against the number of keys (both logarithmic); less is "
        "better. The dashed line is not measured: it is the fp32 matrix (queries x keys) that a "
        "kernel needs which stores every score before it selects."
    )
    rows: list[list[str | Value]] = []
    for entry in entries:
        for name in modes:
            fields = entry.modes[name].fields
            peak = fields.get("peak_bytes")
            rows.append(
                [
                    f"{keys_text(entry.keys)}, {name}",
                    megabytes(fields["workspace_bytes"]),
                    "not known" if peak is None else megabytes(peak),
                    megabytes(matrix_bytes(entry)),
                    Value("raw", cell=entry.cell),
                ]
            )
    blocks: list[Block] = []
    if len(entries) > 1:
        chart = line_chart(
            f"Workspace by keys, {queries} query rows",
            ("keys", "MiB"),
            series,
            marks=(lambda x: keys_text(int(x)), lambda y: f"{y:.3g}"),
        )
        blocks.append(Figure(f"memory-{queries}", sentence, chart))
    columns = ["keys, mode", "workspace", "measured", "matrix of all scores (computed)", ""]
    return [*blocks, Table(f"{queries} query rows.", columns, rows)]


def matrix_bytes(entry: Entry) -> int:
    """Size of the fp32 scores of every pair."""
    return 4 * entry.queries * entry.keys
