# SPDX-License-Identifier: Apache-2.0
"""Writes the page, the summary and the figures of what was measured."""

from __future__ import annotations

import os
from pathlib import Path

from dosa.report import again, maps, others, overview, paper, parts, phases, speed
from dosa.report.blocks import Figure, Section
from dosa.report.data import Data
from dosa.report.page import page
from dosa.report.summary import summary
from dosa.report.theme import standalone


def sections(data: Data) -> list[Section]:
    """Return all sections, in the page's order; those without results have no blocks."""
    made = [
        speed.grid(data),
        speed.traces(data),
        parts.ablation(data),
        parts.components(data),
        maps.heat_maps(data),
        speed.crossover(data),
        maps.memory(data),
        others.decode(data),
        speed.retrieval(data),
        others.model(data),
        paper.paper(data),
        phases.phases(data),
        again.again(data),
        overview.not_here(data),
    ]
    optional = {"traces", "phases", "decode", "retrieval", "model", "again"}
    if data.on_device:
        optional.add("components")
    return [section for section in made if section.blocks or section.key not in optional]


def write(folder: Path, data: Data) -> None:
    """Write index.html, summary.md and figures/*.svg; figures of an older page go.

    Parameters
    ----------
    folder : path
        Where; made where it does not exist.
    data : Data
        What was measured.
    """
    made = sections(data)
    top = overview.overview(data)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    drawn = {
        f"{block.name}.svg": standalone(block.svg)
        for section in made
        for block in section.blocks
        if isinstance(block, Figure)
    }
    for path in figures.glob("*.svg"):
        if path.name not in drawn:
            path.unlink()
    for name, svg in drawn.items():
        _commit(figures / name, svg)
    _commit(folder / "index.html", page(data, top, made))
    _commit(folder / "summary.md", summary(data, top, made))


def _commit(path: Path, text: str) -> None:
    hidden = path.with_name(f".{path.name}.part")
    hidden.write_text(text, encoding="utf-8")
    os.replace(hidden, path)
