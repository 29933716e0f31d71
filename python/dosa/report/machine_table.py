# SPDX-License-Identifier: Apache-2.0
"""What measured, as lines for the page and for the summary."""

from __future__ import annotations

from dosa.report.data import Data


def machine_rows(data: Data) -> list[tuple[str, str]]:
    """Return names and values; several values where cells differ."""
    rows = [
        ("processor", data.fact("machine", "processor")),
        ("processors usable, of all", _usable(data)),
        ("memory", _memory(data)),
        ("system", data.fact("machine", "system")),
        ("frequency governor", data.fact("machine", "governor")),
        ("clock seen", _clock(data)),
        ("load before a cell", _load(data)),
        ("instruction set used", data.header("simd")),
        ("threads", data.header("threads")),
        ("version", data.header("version")),
        ("commit", data.fact("build", "commit")),
        ("command, SHA-256", data.fact("build", "sha256")),
        ("compiler", data.header("compiler")),
        ("OpenBLAS, for sgemm", data.header("openblas")),
        ("decided by", data.header("judged_by")),
        ("measured", _when(data)),
    ]
    return [(name, "; ".join(values) if values else "not known") for name, values in rows]


def _usable(data: Data) -> list[str]:
    usable, all_of_them = data.fact("machine", "usable"), data.fact("machine", "processors")
    return [f"{a} of {b}" for a, b in zip(usable, all_of_them, strict=False)]


def _memory(data: Data) -> list[str]:
    return [f"{int(kib) / (1 << 20):.1f} GiB" for kib in data.fact("machine", "memory_kib")]


def _clock(data: Data) -> list[str]:
    seen = [
        mhz for raw in data.raws for state in raw.facts["state"] for mhz in state.get("mhz", ())
    ]
    return [f"{min(seen):.0f} to {max(seen):.0f} MHz"] if seen else []


def _load(data: Data) -> list[str]:
    """Say how busy the machine was; a load above the threads means that others used it."""
    loads = [raw.facts["state"][0]["load_1min"] for raw in data.raws if raw.facts["state"]]
    if not loads:
        return []
    text = f"{min(loads):.1f} to {max(loads):.1f} (mean over a minute, our own cells included)"
    threads = max((int(value) for value in data.header("threads")), default=0)
    if threads and max(loads) > threads + 1:
        text += "; more than our threads: others used the machine, and times are worse for it"
    return [text]


def _when(data: Data) -> list[str]:
    started = sorted(str(raw.facts["started"]) for raw in data.raws)
    if not started:
        return []
    minutes = sum(raw.facts["seconds"] for raw in data.raws) / 60
    return [f"{started[0]} to {started[-1]}, {minutes:.1f} minutes in {len(started)} cells"]
