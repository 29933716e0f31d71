# SPDX-License-Identifier: Apache-2.0
"""The raw results in the words of the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dosa.report.plan import Cell
from dosa.report.raw import Raw, RawError, Store
from dosa.report.statistics import Range, median, ratios

OURS = ("base", "full", "screen", "auto", "dosa")


@dataclass(frozen=True)
class Mode:
    """One way of answering, in one entry."""

    name: str
    wall: tuple[float, ...]
    """Seconds of a call, one for each repetition."""
    fields: dict[str, Any]

    @property
    def milliseconds(self) -> float:
        """Return the median time."""
        return 1e3 * median(self.wall)

    @property
    def survival(self) -> float | None:
        """Share of visible keys that were scored with all heads; on a GPU, after screening."""
        visible = self.fields.get("visible")
        scored = self.fields.get("fully_scored", self.fields.get("refined_pairs"))
        return scored / visible if visible and scored is not None else None


@dataclass(frozen=True)
class Entry:
    """One input at one shape, all modes."""

    cell: str
    input: str
    source: str
    domain: str
    layer: int
    seed: int
    queries: int
    keys: int
    heads: int
    topk: int
    modes: dict[str, Mode]

    @property
    def variant(self) -> str:
        """The generator's variant, as `glm52:8`; the file's name for a trace."""
        words = self.input.split()
        if "--rows" not in words:
            return self.input.removesuffix(".safetensors")
        return f"{words[0]}:{words[words.index('--rows') + 1]}"

    @property
    def label(self) -> str:
        """Say which input at which shape."""
        domain = f" {self.domain}" if self.domain and "--" in self.input else ""
        return f"{self.variant}{domain}, {keys_text(self.keys)} x {self.queries}"

    @cached_property
    def best(self) -> str:
        """The faster of the modes that score every key."""
        names = [name for name in ("base", "full") if name in self.modes]
        return min(names, key=lambda name: self.modes[name].milliseconds)

    def speedup(self, name: str, over: str) -> Range | None:
        """How many times as fast as another mode; None where one was not measured."""
        if name not in self.modes or over not in self.modes:
            return None
        return ratios(self.modes[over].wall, self.modes[name].wall)

    @property
    def fixed(self) -> list[str]:
        """Names of the modes that screen with a fixed number of heads: `dosa`, or `dosa r=7`."""
        return [name for name, mode in self.modes.items() if mode.fields["mode"] == "dosa"]

    @property
    def peers(self) -> list[str]:
        """Names of libraries of somebody else."""
        return [name for name, mode in self.modes.items() if "ids_in_common" in mode.fields]


@dataclass(frozen=True)
class Parts:
    """The component study of one input."""

    cell: str
    variant: str
    layer: int
    rows: int
    """Rows that were replayed."""
    queries: int
    """Rows of the input, which a call answers."""
    cases: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]]
    over_retained: float


class Data:
    """Everything that was measured, by section.

    Parameters
    ----------
    scale : str
        Name of the scale.
    raws : list of Raw
        The results, in the order of the plan.
    problems : list of str
        One line on each cell that is missing or cannot be used.
    store : Store, optional
        Where results of other programs lie.
    """

    def __init__(
        self, scale: str, raws: list[Raw], problems: list[str], store: Store | None = None
    ) -> None:
        self.scale = scale
        self._store = store
        self.second = None if store is None else store.read_second()
        self.raws = raws
        self.problems = problems
        self._entries: dict[str, list[Entry]] = {}
        self.parts: list[Parts] = []
        for raw in raws:
            if raw.cell.command[0] == "study":
                self.parts += _parts(raw)
            else:
                self._entries.setdefault(raw.cell.section, []).extend(_entries(raw))

    @classmethod
    def load(cls, store: Store, scale: str, cells: list[Cell]) -> Data:
        """Read the cells of a plan; what cannot be read becomes a problem."""
        raws = []
        problems = []
        for cell in cells:
            try:
                raw = store.read(cell)
            except RawError as error:
                problems.append(str(error))
                continue
            if raw is None:
                problems.append(f"{cell.name}.json: missing, not measured")
            else:
                raws.append(raw)
        return cls(scale, raws, problems, store)

    def outside(self, kind: str) -> list[dict[str, Any]]:
        """Return what another program of this project measured."""
        return [] if self._store is None else self._store.kept(kind)

    @property
    def sections(self) -> list[str]:
        """Names of the sections that have entries."""
        return list(self._entries)

    def entries(self, *sections: str) -> list[Entry]:
        """Return what sections measured; all where none is named."""
        chosen = sections or tuple(self._entries)
        return [entry for name in chosen for entry in self._entries.get(name, [])]

    @property
    def builds(self) -> list[str]:
        """Hashes of the commands that measured."""
        return sorted({raw.build for raw in self.raws})

    @property
    def on_device(self) -> bool:
        """True where a GPU measured."""
        return "cuda" in self.header("backend")

    def header(self, name: str) -> list[str]:
        """Return the distinct values of a field that `dosa bench` writes about itself."""
        return distinct(raw.result.get(name) for raw in self.raws)

    def fact(self, group: str, name: str) -> list[str]:
        """Return the distinct values of a field of the raw files."""
        return distinct(raw.facts[group].get(name) for raw in self.raws)


def distinct(values: Iterable[Any]) -> list[str]:
    """Return the values that are there, as text, in the order of their first appearance."""
    return list(dict.fromkeys(str(value) for value in values if value is not None))


def keys_text(keys: int) -> str:
    """Write a number of keys: 128K is 131,072."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if keys >= size and keys % size == 0:
            return f"{keys // size}{letter}"
    return f"{keys:,}"


def _entries(raw: Raw) -> list[Entry]:
    entries = []
    for one in raw.result["cells"]:
        names = [mode["mode"] for mode in one["modes"]]
        modes = {}
        for mode in one["modes"]:
            several = names.count(mode["mode"]) > 1
            name = f"{mode['mode']} r={mode['heads']}" if several else mode["mode"]
            modes[name] = Mode(name, tuple(mode["wall_s"]), mode)
        entries.append(
            Entry(
                cell=raw.cell.name,
                input=one["input"],
                source=one["source"],
                domain=one["domain"],
                layer=one["layer"],
                seed=one["seed"],
                queries=one["Q"],
                keys=one["N"],
                heads=one["H"],
                topk=one["K"],
                modes=modes,
            )
        )
    return entries


def _parts(raw: Raw) -> list[Parts]:
    return [
        Parts(
            cell=raw.cell.name,
            variant=one["group"].replace(" --rows ", ":"),
            layer=one["layer"],
            rows=len(one["rows"]),
            queries=one["shape"]["queries"],
            cases={case["name"]: case for case in one["cases"]},
            runs={run["name"]: run for run in one["runs"]},
            over_retained=one["over_retained"],
        )
        for one in raw.result["inputs"]
    ]
