# SPDX-License-Identifier: Apache-2.0
"""What is measured: cells, each one call of the command `dosa`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LAYERS = 21
"""Layers of GLM-5.2 that have an indexer of their own, and that the generator knows."""
RETAINED = {("glm52", 8): 6, ("glm52", 16): 14, ("dsv32", 16): 14}
"""Retained heads of each variant of the generator: its screening rows without an aggregate's two.
"""
_MIDDLE = 10  # the layer of all cells that do not compare layers
_STUDY_QUERIES = 65  # rows of an input of `dosa study`, 64 tokens apart
_MOST_SECONDS = 60.0  # after which three repetitions are enough


@dataclass(frozen=True)
class Cell:
    """One call of `dosa`, and the name under which its result is kept."""

    name: str
    section: str
    command: tuple[str, ...]
    """Arguments of `dosa`, without those that say where the result goes."""
    estimate: float
    """Seconds that it may take on two cores; only their proportions matter."""


@dataclass(frozen=True)
class Source:
    """A generated input."""

    kind: str
    rows: int
    domain: str

    @property
    def slug(self) -> str:
        """Part of a file's name."""
        return f"{self.kind}-{self.rows}-{self.domain}"

    def spec(self, layers: str = str(_MIDDLE), domains: str | None = None) -> str:
        """Return what follows `dosa gen`."""
        chosen = self.domain if domains is None else domains
        return f"{self.kind} --rows {self.rows} --layer {layers} --domain {chosen}"

    @property
    def retained(self) -> int:
        """Return the retained heads that the input was calibrated for."""
        return RETAINED[self.kind, self.rows]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What every scale says. Lengths are numbers of keys, `queries` numbers of query rows."""

    name: str
    sources: tuple[Source, ...]
    variants: tuple[Source, ...]
    """Inputs of the sections that look at one domain only."""
    grid_keys: tuple[int, ...]
    grid_queries: tuple[int, ...]
    crossover_keys: tuple[int, ...]
    crossover_queries: int
    layers: tuple[int, ...]
    ablation_queries: int
    map_queries: int
    map_domains: tuple[str, ...]
    map_seeds: tuple[int, ...]
    map_repeats: int
    repeats: int
    topk: int = 2048
    traces: tuple[str, ...] = field(default=())
    peers: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Scale(Sizes):
    """How much is measured on a CPU."""

    layer_keys: int
    memory_keys: tuple[int, ...]
    memory_queries: tuple[int, ...]
    study_rows: int
    threads: int = 0


_VARIANTS = tuple(Source("glm52", rows, "en") for rows in (8, 16))
_EXTRAPOLATED = Source("dsv32", 16, "en")
_LONG = tuple(1 << n for n in range(11, 21))

FULL = Scale(
    name="full",
    sources=(
        *(Source("glm52", rows, domain) for rows in (8, 16) for domain in ("en", "zh", "code")),
        _EXTRAPOLATED,
    ),
    variants=_VARIANTS,
    grid_keys=(1 << 14, 1 << 17, 1 << 20),
    grid_queries=(64, 512),
    crossover_keys=_LONG,
    crossover_queries=64,
    layers=tuple(range(LAYERS)),
    layer_keys=1 << 17,
    ablation_queries=64,
    map_queries=16,
    map_domains=("en", "zh", "code"),
    map_seeds=(1001, 1002),
    map_repeats=12,
    memory_keys=(1 << 14, 1 << 16, 1 << 18, 1 << 20),
    memory_queries=(64, 512),
    study_rows=8,
    repeats=5,
)
QUICK = Scale(
    name="quick",
    sources=(*_VARIANTS, Source("glm52", 8, "code"), _EXTRAPOLATED),
    variants=_VARIANTS,
    grid_keys=(1 << 14, 1 << 17),
    grid_queries=(64,),
    crossover_keys=_LONG[:7],
    crossover_queries=32,
    layers=(0, 2, 10, 20),
    layer_keys=1 << 16,
    ablation_queries=32,
    map_queries=16,
    map_domains=("en", "zh", "code"),
    map_seeds=(1001,),
    map_repeats=5,
    memory_keys=(1 << 14, 1 << 17),
    memory_queries=(64,),
    study_rows=4,
    repeats=3,
)


def cells(scale: Scale) -> list[Cell]:
    """Return all cells of a scale, in the order in which they are measured."""
    return [
        *_grid(scale),
        *_traces(scale),
        *_crossover(scale),
        *_ablation(scale),
        *_components(scale),
        *_heat_map(scale),
        *_memory(scale),
    ]


def _bench(scale: Scale, source: Source, keys: int, queries: int, modes: str) -> list[str]:
    return [
        *("bench", "--gen", source.spec(), "--keys", str(keys), "--rows", str(queries)),
        *("--modes", modes, "--heads", str(source.retained)),
        *_common(scale),
        *("--repeat", str(scale.repeats)),
    ]


def _common(scale: Scale) -> list[str]:
    return ["--topk", str(scale.topk), "--threads", str(scale.threads)]


def _seconds(pairs: int, keys: int, repeats: int, *, sgemm: bool = False) -> float:
    """Estimate a cell's time: its modes cost about as much as scoring every pair three times."""
    one = 2.0e-8 * pairs
    turn = 3 * one
    if turn * repeats > _MOST_SECONDS:  # as `dosa bench --cell-seconds` has it
        repeats = max(3, min(repeats, round(_MOST_SECONDS / turn)))
    baseline = 2 * one * ((repeats + 1) if 2 * one < 1 else 2) if sgemm else 0.0
    return 0.3 + 1.5e-6 * keys + turn * (repeats + 1) + baseline


def _grid(scale: Scale) -> Iterator[Cell]:
    modes = "base,full,sgemm,auto,dosa"
    for keys in scale.grid_keys:
        for queries in scale.grid_queries:
            for source in scale.sources:
                command = _bench(scale, source, keys, queries, modes)
                for peer in scale.peers:
                    command += ["--peer", peer]
                heads = 2 if source.kind == "dsv32" else 1
                estimate = _seconds(keys * queries * heads, keys, scale.repeats, sgemm=True)
                name = f"grid-{source.slug}-{keys}x{queries}"
                yield Cell(name, "grid", tuple(command), estimate)


def _traces(scale: Scale) -> Iterator[Cell]:
    for number, trace in enumerate(scale.traces):
        command = ["bench", trace, "--rows", str(scale.grid_queries[0]), "--modes"]
        command += ["base,full,sgemm,auto,dosa", *_common(scale), "--repeat", str(scale.repeats)]
        for peer in scale.peers:
            command += ["--peer", peer]
        yield Cell(f"trace-{number}-{Path(trace).stem}", "traces", tuple(command), 20.0)


def _crossover(scale: Scale) -> Iterator[Cell]:
    for source in scale.variants:
        for keys in scale.crossover_keys:
            queries = scale.crossover_queries
            command = _bench(scale, source, keys, queries, "base,full,screen,auto,dosa")
            estimate = _seconds(keys * queries, keys, scale.repeats)
            name = f"crossover-{source.slug}-{keys}x{queries}"
            yield Cell(name, "crossover", tuple(command), estimate)


def _ablation(scale: Scale) -> Iterator[Cell]:
    for source in scale.variants:
        for layer in scale.layers:
            command = _bench(
                scale, source, scale.layer_keys, scale.ablation_queries, "base,full,screen,dosa"
            )
            command[2] = source.spec(str(layer))
            pairs = scale.layer_keys * scale.ablation_queries
            estimate = _seconds(pairs, scale.layer_keys, scale.repeats)
            name = f"ablation-{source.slug}-layer{layer}"
            yield Cell(name, "ablation", tuple(command), estimate)


def _components(scale: Scale) -> Iterator[Cell]:
    for source in scale.variants:
        for layer in scale.layers:
            command = [
                *("study", "--gen", f"{source.spec(str(layer))} --keys {scale.layer_keys}"),
                *("--facets", "components", "--sample", str(scale.study_rows)),
                *("--repeat", str(min(3, scale.repeats)), *_common(scale)),
            ]
            pairs = scale.layer_keys * _STUDY_QUERIES
            estimate = 2 + 3 * _seconds(pairs, scale.layer_keys, min(3, scale.repeats))
            name = f"components-{source.slug}-layer{layer}"
            yield Cell(name, "components", tuple(command), estimate)


def _heat_map(scale: Scale) -> Iterator[Cell]:
    domains = ",".join(scale.map_domains)
    seeds = ",".join(map(str, scale.map_seeds))
    inputs = len(scale.map_domains) * len(scale.map_seeds)
    for source in scale.variants:
        for layer in scale.layers:
            command = _bench(
                scale, source, scale.layer_keys, scale.map_queries, "base,full,auto,dosa"
            )
            command[2] = f"{source.spec(str(layer), domains)} --seed {seeds}"
            command[-1] = str(scale.map_repeats)
            pairs = scale.layer_keys * scale.map_queries
            one = _seconds(pairs, scale.layer_keys, scale.map_repeats)
            name = f"map-{source.kind}-{source.rows}-layer{layer}"
            yield Cell(name, "map", tuple(command), inputs * one)


def _memory(scale: Scale) -> Iterator[Cell]:
    source = scale.variants[0]
    for keys in scale.memory_keys:
        for queries in scale.memory_queries:
            command = _bench(scale, source, keys, queries, "base,full,auto,dosa")
            command[-1] = "1"
            estimate = _seconds(keys * queries, keys, 2)
            name = f"memory-{source.slug}-{keys}x{queries}"
            yield Cell(name, "memory", (*command, "--memory"), estimate)
