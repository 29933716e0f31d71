# SPDX-License-Identifier: Apache-2.0
"""Where the time of a call on a GPU goes, against what its arithmetic takes at least."""

from __future__ import annotations

from dosa.report.blocks import Figure, Section, Table, Text, Value
from dosa.report.charts import stacked_bars
from dosa.report.data import Data, Entry, Mode, keys_text
from dosa.report.statistics import median
from dosa.report.words import significant

PHASES = (
    "prepare", "dense", "scouts", "plan", "screen", "lists", "refine", "fallback",
    "reduce", "recover", "select",
)  # fmt: skip
_FLOORS = {"screen": "screen", "refine": "refine"}


def phases(data: Data) -> Section:
    """Phases of a call as stacked bars, and their floors."""
    section = Section("phases", "10. Phases against their floors")
    chosen = _measured(data.entries("phases"))
    if not chosen:
        return section
    bars = [
        (f"{entry.variant} {entry.domain} {keys_text(entry.keys)}, {name}", _parts(mode))
        for entry, name, mode in chosen
        if entry.keys == max(e.keys for e, _, _ in chosen)
    ]
    sentence = (
        "Where the time of one call goes, ms, at the largest shape of each input; shorter is "
        "better. The black line of a bar is its floor: the operations of its products (every key "
        "with every head for full, else screening and refinement) over the rate of a large e4m3 "
        "product measured in the same run."
    )
    section.blocks = [
        Text(
            "Medians of calls with an event between phases. A floor counts arithmetic only; it "
            "knows nothing of memory, of selection, or of the first keys that every row scores "
            "densely."
        ),
        Figure("phases", sentence, stacked_bars("Phases of a call", "milliseconds", PHASES, bars)),
        _table(chosen),
    ]
    return section


def _measured(entries: list[Entry]) -> list[tuple[Entry, str, Mode]]:
    """Return every mode whose phases were timed."""
    return [
        (entry, name, entry.modes[name])
        for entry in entries
        for name in ("full", "auto", *entry.fixed)
        if name in entry.modes and "phases_s" in entry.modes[name].fields
    ]


def _phase(mode: Mode, name: str) -> float:
    """Return the median time of a phase, ms."""
    samples = mode.fields["phases_s"].get(name)
    return 1e3 * median(samples) if samples else 0.0


def _floor(mode: Mode) -> float:
    """Return the arithmetic floor of the whole call, ms; 0 where it is not known."""
    floors = mode.fields["floors_s"]
    if mode.fields["screening_rows"] is None:  # the device chose
        return 0.0
    if mode.fields["screening_rows"]:
        return 1e3 * float(floors["screen"] + floors["refine"])
    return 1e3 * float(floors["every_key"])


def _parts(mode: Mode) -> tuple[list[tuple[str, float]], float]:
    return [(name, _phase(mode, name)) for name in PHASES if _phase(mode, name) > 0], _floor(mode)


def _table(chosen: list[tuple[Entry, str, Mode]]) -> Table:
    rows: list[list[str | Value]] = []
    for entry, name, mode in chosen:
        floors = mode.fields["floors_s"]
        total = sum(_phase(mode, phase) for phase in PHASES)
        row: list[str | Value] = [f"{entry.label}, {name}", significant(total)]
        row.append(_over(total, _floor(mode)))
        for phase in ("screen", "refine"):
            row.append(significant(_phase(mode, phase)))
            row.append(_over(_phase(mode, phase), 1e3 * float(floors[_FLOORS[phase]])))
        row.append(_over(_phase(mode, "dense"), 1e3 * float(floors["every_key"])) if name == "full"
                   else "-")  # fmt: skip
        apart = ("screen", "refine", "dense", "prepare")
        rest = total - sum(_phase(mode, phase) for phase in apart)
        row += [significant(_phase(mode, "dense")), significant(_phase(mode, "prepare"))]
        row += [significant(total - _phase(mode, "prepare")), significant(rest)]
        rows.append([*row, Value("raw", cell=entry.cell)])
    columns = ["input, keys x queries, mode", "all, ms", "over floor", "screen, ms", "over floor"]
    columns += ["refine, ms", "over floor", "dense over floor", "dense, ms", "prepare, ms"]
    columns += ["all but prepare, ms", "rest, ms", ""]
    caption = (
        "The same in numbers. 'Over floor' is the measured time over the floor; '-' where there "
        "is none. 'All but prepare' is what is left where queries and keys come prepared."
    )
    return Table(caption, columns, rows)


def _over(time: float, floor: float) -> str:
    return f"{time / floor:.2f}" if floor > 0 and time > 0 else "-"
