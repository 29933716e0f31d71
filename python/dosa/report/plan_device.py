# SPDX-License-Identifier: Apache-2.0
"""What is measured on a GPU: cells of `dosa bench --backend cuda`, each with several shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dosa.report.plan import LAYERS, Cell, Sizes, Source

_K = 1 << 10


@dataclass(frozen=True, kw_only=True)
class DeviceScale(Sizes):
    """How much is measured on a GPU."""

    long_queries: tuple[int, ...]
    """Numbers of rows with 64 heads."""
    trace_queries: tuple[int, ...]
    phase_queries: int
    phase_calls: int
    ablation_variants: tuple[Source, ...]
    ablation_keys: int
    ablation_repeats: int
    map_keys: int
    layers_of_cell: int
    """Layers that one call of the command measures, one after the other."""
    scaling_keys: tuple[int, ...]
    scaling_queries: int
    retrieval_queries: tuple[int, ...]
    retrieval: tuple[str, ...] = ()


_VARIANTS = (Source("glm52", 8, "en"), Source("glm52", 16, "en"))
_DOMAINS = ("en", "zh", "code")
_GRID = tuple(n * _K for n in (128, 256, 512, 768, 1024))
_LONG = tuple(1 << n for n in range(11, 21))

DEVICE_FULL = DeviceScale(
    name="full, on a GPU",
    sources=(*(Source("glm52", 16, domain) for domain in _DOMAINS), Source("dsv32", 16, "en")),
    variants=_VARIANTS,
    grid_keys=_GRID,
    grid_queries=tuple(n * _K for n in (4, 8, 16, 32)),
    long_queries=(4 * _K, 16 * _K),
    trace_queries=(4 * _K, 16 * _K),
    retrieval_queries=(4 * _K,),
    phase_queries=16 * _K,
    phase_calls=2,
    crossover_keys=_LONG,
    crossover_queries=4 * _K,
    layers=tuple(range(LAYERS)),
    ablation_variants=_VARIANTS[1:],
    ablation_keys=896 * _K,
    ablation_queries=16 * _K,
    ablation_repeats=2,
    map_keys=128 * _K,
    map_queries=4 * _K,
    map_domains=_DOMAINS,
    map_seeds=(1001, 1002),
    map_repeats=12,
    layers_of_cell=3,
    scaling_keys=tuple(n * _K for n in (64, 256, 1024, 4096)),
    scaling_queries=4 * _K,
    repeats=3,
)
DEVICE_QUICK = replace(
    DEVICE_FULL,
    name="quick, on a GPU",
    sources=(Source("glm52", 16, "en"), Source("dsv32", 16, "en")),
    grid_queries=(4 * _K, 16 * _K),
    phase_calls=1,
    layers=(0, 10),
    map_domains=("en", "code"),
    map_seeds=(1001,),
    map_repeats=3,
)


def device_cells(scale: DeviceScale) -> list[Cell]:
    """Return all cells of a scale, in the order in which they are measured."""
    first = [one for one in scale.sources if one.domain == "en"]
    others = [one for one in scale.sources if one.domain != "en"]
    return [
        *_phases(scale),
        *_crossover(scale),
        *_scaling(scale),
        *_files(scale, "retrieval", scale.retrieval, scale.retrieval_queries),
        *_heat_map(scale),
        *_ablation(scale),
        *_grid(scale, first),
        *_files(scale, "traces", scale.traces, scale.trace_queries),
        *_grid(scale, others),
    ]


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _bench(
    scale: DeviceScale,
    what: list[str],
    shape: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    modes: str,
    repeats: int,
    phase_calls: int = 0,
) -> tuple[str, ...]:
    """Return a call of the command; ceilings are measured where phases are."""
    keys, rows = shape
    words = ["bench", "--backend", "cuda", *what, "--keys", _joined(keys), "--rows", _joined(rows)]
    words += ["--modes", modes, "--topk", str(scale.topk), "--repeat", str(repeats)]
    words += ["--phase-calls", str(phase_calls)]
    return tuple(words if phase_calls else [*words, "--no-ceilings"])


def _seconds(
    shape: tuple[tuple[int, ...], tuple[int, ...]], heads: int, turns: int, inputs: int = 1
) -> float:
    """Estimate a cell's time: the modes of a turn take as long as scoring every pair thrice."""
    keys, rows = shape
    pairs = sum(keys) * sum(rows) * heads / 32
    made = 1.0e-6 * max(keys) + 3.0e-5 * max(rows)
    return 0.8 + inputs * (0.05 + made + 2.8e-11 * pairs * (turns + 1))


def _heads(source: Source) -> int:
    return 64 if source.kind == "dsv32" else 32


def _peers(scale: DeviceScale) -> list[str]:
    return [word for peer in scale.peers for word in ("--peer", peer)]


def _halves(rows: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Split the numbers of rows, so that a cell is not too long to be lost."""
    return [part for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]) if part]


def _grid(scale: DeviceScale, sources: list[Source]) -> Iterator[Cell]:
    for source in sources:
        for rows in _halves(scale.grid_queries if _heads(source) == 32 else scale.long_queries):
            shape = (scale.grid_keys, rows)
            what = ["--gen", source.spec(), *_peers(scale)]
            yield Cell(
                f"grid-{source.slug}-{max(rows)}",
                "grid",
                _bench(scale, what, shape, modes="base,full,auto", repeats=scale.repeats),
                _seconds(shape, _heads(source), scale.repeats),
            )


def _files(
    scale: DeviceScale, section: str, files: tuple[str, ...], rows: tuple[int, ...]
) -> Iterator[Cell]:
    for number, file in enumerate(files):
        shape = (scale.grid_keys, rows)
        what = [file, *_peers(scale)]
        yield Cell(
            f"{section.removesuffix('s')}-{number}-{Path(file).stem}",
            section,
            _bench(scale, what, shape, modes="base,full,auto", repeats=scale.repeats),
            _seconds(shape, 48, scale.repeats),
        )


def _phases(scale: DeviceScale) -> Iterator[Cell]:
    for source in (*scale.variants, Source("dsv32", 16, "en")):
        shape = (scale.grid_keys, (scale.phase_queries,))
        what = ["--gen", source.spec(), "--heads", str(source.retained)]
        calls = scale.phase_calls
        yield Cell(
            f"phases-{source.slug}",
            "phases",
            _bench(scale, what, shape, modes="full,auto,dosa", repeats=1, phase_calls=calls),
            _seconds(shape, _heads(source), 1 + calls) + 1.5,
        )


def _crossover(scale: DeviceScale) -> Iterator[Cell]:
    for source in scale.variants:
        shape = (scale.crossover_keys, (scale.crossover_queries,))
        what = ["--gen", source.spec(), "--heads", str(source.retained), *_peers(scale)]
        repeats = 2 * scale.repeats
        yield Cell(
            f"crossover-{source.slug}",
            "crossover",
            _bench(scale, what, shape, modes="base,full,auto,dosa", repeats=repeats),
            _seconds(shape, 32, repeats),
        )


def _by_layer(scale: DeviceScale) -> Iterator[tuple[str, int]]:
    """Layers of one cell, as `dosa gen` takes them, and how many."""
    for at in range(0, len(scale.layers), scale.layers_of_cell):
        layers = scale.layers[at : at + scale.layers_of_cell]
        yield _joined(layers), len(layers)


def _ablation(scale: DeviceScale) -> Iterator[Cell]:
    shape = ((scale.ablation_keys,), (scale.ablation_queries,))
    repeats = scale.ablation_repeats
    for source in scale.ablation_variants:
        for layers, count in _by_layer(scale):
            what = ["--gen", source.spec(layers), "--heads", str(source.retained)]
            yield Cell(
                f"ablation-{source.slug}-layer{layers.replace(',', '-')}",
                "ablation",
                _bench(scale, what, shape, modes="base,full,dosa", repeats=repeats),
                _seconds(shape, 32, repeats, count),
            )


def _scaling(scale: DeviceScale) -> Iterator[Cell]:
    source = scale.variants[0]
    shape = (scale.scaling_keys, (scale.scaling_queries,))
    yield Cell(
        f"memory-{source.slug}",
        "memory",
        _bench(scale, ["--gen", source.spec()], shape, modes="base,full,auto", repeats=3),
        _seconds(shape, 32, 3),
    )


def _heat_map(scale: DeviceScale) -> Iterator[Cell]:
    domains = ",".join(scale.map_domains)
    inputs = len(scale.map_domains) * len(scale.map_seeds)
    shape = ((scale.map_keys,), (scale.map_queries,))
    repeats = scale.map_repeats
    for source in scale.variants:
        for layers, count in _by_layer(scale):
            spec = f"{source.spec(layers, domains)} --seed {_joined(scale.map_seeds)}"
            yield Cell(
                f"map-{source.kind}-{source.rows}-layer{layers.replace(',', '-')}",
                "map",
                _bench(scale, ["--gen", spec], shape, modes="base,full,auto", repeats=repeats),
                _seconds(shape, 32, repeats, inputs * count),
            )
