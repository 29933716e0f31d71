# SPDX-License-Identifier: Apache-2.0
"""What is measured on a GPU: cells of `dosa bench --backend cuda`, each with several shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dosa.report.plan import LAYERS, Cell, Sizes, Source

_K = 1 << 10
_MIDDLE = str(10)  # the layer of all cells that do not compare layers


@dataclass(frozen=True, kw_only=True)
class DeviceScale(Sizes):
    """How much is measured on a GPU."""

    ablation_keys: int
    map_keys: int
    scaling_keys: tuple[int, ...]
    scaling_queries: int
    phase_calls: int


_VARIANTS = (Source("glm52", 8, "en"), Source("glm52", 16, "en"))
_GRID = tuple(n * _K for n in (128, 256, 512, 768, 1024))
_LONG = tuple(1 << n for n in range(11, 21))

DEVICE_FULL = DeviceScale(
    name="full, on a GPU",
    sources=(
        *(Source("glm52", rows, domain) for rows in (8, 16) for domain in ("en", "zh", "code")),
        *(Source("dsv32", 16, domain) for domain in ("en", "zh", "code")),
    ),
    variants=_VARIANTS,
    grid_keys=_GRID,
    grid_queries=tuple(n * _K for n in (4, 8, 16, 32)),
    crossover_keys=_LONG,
    crossover_queries=4 * _K,
    layers=tuple(range(LAYERS)),
    ablation_keys=896 * _K,
    ablation_queries=16 * _K,
    map_keys=512 * _K,
    map_queries=4 * _K,
    map_domains=("en", "zh", "code"),
    map_seeds=(1001, 1002),
    map_repeats=12,
    scaling_keys=tuple(n * _K for n in (64, 256, 1024, 4096)),
    scaling_queries=4 * _K,
    repeats=5,
    phase_calls=3,
)
DEVICE_QUICK = DeviceScale(
    name="quick, on a GPU",
    sources=(*_VARIANTS, Source("dsv32", 16, "en")),
    variants=_VARIANTS[:1],
    grid_keys=_GRID,
    grid_queries=(4 * _K, 16 * _K),
    crossover_keys=_LONG,
    crossover_queries=4 * _K,
    layers=(0, 10),
    ablation_keys=896 * _K,
    ablation_queries=16 * _K,
    map_keys=512 * _K,
    map_queries=4 * _K,
    map_domains=("en", "code"),
    map_seeds=(1001,),
    map_repeats=3,
    scaling_keys=tuple(n * _K for n in (64, 256, 1024, 4096)),
    scaling_queries=4 * _K,
    repeats=3,
    phase_calls=1,
)


def device_cells(scale: DeviceScale) -> list[Cell]:
    """Return all cells of a scale, in the order in which they are measured."""
    return [
        *_grid(scale),
        *_traces(scale),
        *_crossover(scale),
        *_ablation(scale),
        *_scaling(scale),
        *_heat_map(scale),
    ]


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _bench(
    scale: DeviceScale, what: list[str], keys: tuple[int, ...], rows: tuple[int, ...]
) -> list[str]:
    return [
        *("bench", "--backend", "cuda", *what, "--keys", _joined(keys), "--rows", _joined(rows)),
        *("--topk", str(scale.topk), "--phase-calls", str(scale.phase_calls)),
    ]


def _seconds(keys: tuple[int, ...], rows: tuple[int, ...], heads: int, turns: int) -> float:
    """Estimate a cell's time: four modes, together as long as scoring every pair three times."""
    pairs = sum(keys) * sum(rows) * heads / 32
    return 1.5 + 1.5e-6 * max(keys) + 2.8e-11 * pairs * (turns + 3)


def _grid(scale: DeviceScale) -> Iterator[Cell]:
    for source in scale.sources:
        what = ["--gen", source.spec(), "--modes", "base,full,auto,dosa"]
        what += ["--heads", str(source.retained), "--repeat", str(scale.repeats)]
        for peer in scale.peers:
            what += ["--peer", peer]
        heads = 64 if source.kind == "dsv32" else 32
        yield Cell(
            f"grid-{source.slug}",
            "grid",
            tuple(_bench(scale, what, scale.grid_keys, scale.grid_queries)),
            _seconds(scale.grid_keys, scale.grid_queries, heads, scale.repeats),
        )


def _traces(scale: DeviceScale) -> Iterator[Cell]:
    for number, trace in enumerate(scale.traces):
        what = [trace, "--modes", "base,full,auto,dosa", "--heads", "14,22"]
        what += ["--repeat", str(scale.repeats)]
        for peer in scale.peers:
            what += ["--peer", peer]
        yield Cell(
            f"trace-{number}-{Path(trace).stem}",
            "traces",
            tuple(_bench(scale, what, scale.grid_keys, scale.grid_queries)),
            _seconds(scale.grid_keys, scale.grid_queries, 48, scale.repeats),
        )


def _crossover(scale: DeviceScale) -> Iterator[Cell]:
    for source in scale.variants:
        what = ["--gen", source.spec(), "--modes", "base,full,auto,dosa"]
        what += ["--heads", str(source.retained), "--repeat", str(2 * scale.repeats)]
        rows = (scale.crossover_queries,)
        what.append("--no-ceilings")
        yield Cell(
            f"crossover-{source.slug}",
            "crossover",
            tuple(_bench(scale, what, scale.crossover_keys, rows)),
            _seconds(scale.crossover_keys, rows, 32, 2 * scale.repeats),
        )


def _ablation(scale: DeviceScale) -> Iterator[Cell]:
    keys, rows = (scale.ablation_keys,), (scale.ablation_queries,)
    for source in scale.variants:
        for layer in scale.layers:
            what = ["--gen", source.spec(str(layer)), "--modes", "base,full,dosa"]
            what += ["--heads", str(source.retained), "--repeat", str(scale.repeats)]
            what.append("--no-ceilings")
            yield Cell(
                f"ablation-{source.slug}-layer{layer}",
                "ablation",
                tuple(_bench(scale, what, keys, rows)),
                _seconds(keys, rows, 32, scale.repeats),
            )


def _scaling(scale: DeviceScale) -> Iterator[Cell]:
    source = scale.variants[0]
    what = ["--gen", source.spec(_MIDDLE), "--modes", "base,full,auto", "--repeat", "3"]
    rows = (scale.scaling_queries,)
    what.append("--no-ceilings")
    yield Cell(
        f"memory-{source.slug}",
        "memory",
        tuple(_bench(scale, what, scale.scaling_keys, rows)),
        _seconds(scale.scaling_keys, rows, 32, 3),
    )


def _heat_map(scale: DeviceScale) -> Iterator[Cell]:
    domains = ",".join(scale.map_domains)
    inputs = len(scale.map_domains) * len(scale.map_seeds)
    keys, rows = (scale.map_keys,), (scale.map_queries,)
    for source in scale.variants:
        for layer in scale.layers:
            spec = f"{source.spec(str(layer), domains)} --seed {_joined(scale.map_seeds)}"
            what = ["--gen", spec, "--modes", "base,full,auto,dosa"]
            what += ["--heads", str(source.retained), "--repeat", str(scale.map_repeats)]
            what.append("--no-ceilings")
            yield Cell(
                f"map-{source.kind}-{source.rows}-layer{layer}",
                "map",
                tuple(_bench(scale, what, keys, rows)),
                inputs * _seconds(keys, rows, 32, scale.map_repeats),
            )
