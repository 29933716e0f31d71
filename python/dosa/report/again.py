# SPDX-License-Identifier: Apache-2.0
"""A second run of the same plan, beside this one."""

from __future__ import annotations

from typing import Any

from dosa.report.blocks import Section, Table, Text
from dosa.report.data import Data, Entry
from dosa.report.statistics import Range, median

_CLOSE = 0.03  # medians this close agree whatever a few repetitions' range says


def kept(data: Data) -> dict[str, Any]:
    """Return what a later page needs of a run to compare itself with it."""
    started = sorted(str(raw.facts["started"]) for raw in data.raws)
    return {
        "started": started[0] if started else "",
        "builds": data.builds,
        "commits": data.fact("build", "commit"),
        "ratios": [
            [*_key(entry), over, one.middle, one.low, one.high]
            for entry in data.entries()
            for over in ("base", "full")
            if (one := entry.speedup("auto", over)) is not None
        ],
    }


def again(data: Data) -> Section:
    """Put the ratios of two runs beside each other."""
    section = Section("again", "11. A second run")
    second = data.second
    if second is None:
        return section
    theirs = {tuple(row[:-3]): Range(row[-3], row[-2], row[-1], 0) for row in second["ratios"]}
    pairs = [
        (name, entry, one, theirs[(*_key(entry), over)])
        for name in data.sections
        for entry in data.entries(name)
        for over in ("base", "full")
        if (one := entry.speedup("auto", over)) is not None
        if (*_key(entry), over) in theirs
    ]
    same = set(second["builds"]) == set(data.builds)
    section.blocks.append(
        Text(
            f"The same plan was measured at {second['started']} as well, by "
            f"{'the same build' if same else 'an earlier build, whose auto may choose otherwise'}. "
            "Compared are the ratios of auto to base and to full. Two ratios agree where the "
            f"ranges of their repetitions touch or their medians differ by at most "
            f"{100 * _CLOSE:.0f}%."
        )
    )
    rows = []
    for name in dict.fromkeys(name for name, *_ in pairs):
        mine = [(one, other) for section_name, _, one, other in pairs if section_name == name]
        apart = [abs(one.middle / other.middle - 1) for one, other in mine]
        agree = sum(_agree(one, other) for one, other in mine)
        rows.append(
            [name, f"{agree} of {len(mine)}", f"{100 * median(apart):.1f}%",
             f"{100 * max(apart):.1f}%"]
        )  # fmt: skip
    columns = ["section", "ratios that agree", "median difference", "largest difference"]
    section.blocks.append(Table("", columns, rows))
    return section


def _agree(one: Range, other: Range) -> bool:
    touch = one.low <= other.high and other.low <= one.high
    return touch or abs(one.middle / other.middle - 1) <= _CLOSE


def _key(entry: Entry) -> tuple[str | int, ...]:
    return (entry.cell, entry.input, entry.layer, entry.seed, entry.queries, entry.keys)
