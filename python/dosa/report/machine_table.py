# SPDX-License-Identifier: Apache-2.0
"""What measured, as lines for the page and for the summary."""

from __future__ import annotations

from dosa.report.data import Data
from dosa.report.statistics import median


def machine_rows(data: Data) -> list[tuple[str, str]]:
    """Return names and values; several values where cells differ."""
    if data.on_device:
        return _device_rows(data)
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
    return _joined(rows)


def _joined(rows: list[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    return [(name, "; ".join(values) if values else "not known") for name, values in rows]


def _device_rows(data: Data) -> list[tuple[str, str]]:
    return _joined(
        [
            ("device", data.header("device")),
            ("driver", data.header("driver") + data.fact("machine", "gpu_driver")),
            ("runtime", data.header("runtime")),
            ("clock and power seen", _gpu_states(data)),
            ("copy, bytes read and written", _ceiling(data, "copy", 1e12, "TB/s")),
            ("large e4m3 product", _ceiling(data, "product", 1e12, "TFLOP/s")),
            ("processor", data.header("cpu")),
            ("system", data.fact("machine", "system")),
            ("version", data.header("version")),
            ("commit", data.fact("build", "commit")),
            ("command, SHA-256", data.fact("build", "sha256")),
            ("decided by", data.header("judged_by")),
            ("measured", _when(data)),
        ]
    )


def _gpu_states(data: Data) -> list[str]:
    states = [state["gpu"] for raw in data.raws for state in raw.facts["state"] if "gpu" in state]
    if not states:
        return []
    clocks = [one["mhz"] for one in states]
    watts = [one["watts"] for one in states]
    return [
        f"{min(clocks):.0f} to {max(clocks):.0f} MHz and {min(watts):.0f} to {max(watts):.0f} W "
        "between cells"
    ]


def _ceiling(data: Data, name: str, unit: float, text: str) -> list[str]:
    """Return the median over all cells' medians, the range, and how it was measured."""
    found = [raw.result["ceilings"][name] for raw in data.raws if "ceilings" in raw.result]
    found = [one for one in found if one["rates"]] or found
    rates = [median(one["rates"]) / unit for one in found if one["rates"]]
    if not rates:
        return [str(one["how"]) for one in found[:1]]
    how = found[0]["how"]
    return [f"{median(rates):.4g} {text} ({min(rates):.4g} to {max(rates):.4g}), {how}"]


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
