# SPDX-License-Identifier: Apache-2.0
"""Figures of a study: ``python -m dosa.plot STUDY.json ... -o FOLDER``.

Reads what ``dosa study --json`` wrote and draws, where the study has the data: the share of keys
that survive by part of the certificate, by retained heads and by layer; the course of a scan with a
rising threshold; a heat map over layers and domains.

Needs matplotlib: ``pip install 'dosa[plot]'``.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dosa._study import Group, course, layers_of, mean, of_layer, read, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "main", "read"]

# Colours that stay apart for colour-blind readers and in print (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
LINES = (
    ("paper's rules", "scored_fixed", "paper's rules, fixed threshold", RED, "o"),
    ("defaults", "scored_rising", "defaults, rising threshold", BLUE, "s"),
    ("defaults", "survival_true", "defaults, perfect threshold, no pool", GREEN, "^"),
)
COMPONENTS = (
    ("full certificate", "survival_fixed", "full certificate", RED),
    ("aggregate all", "survival_fixed", "all negative heads aggregated", ORANGE),
    ("no aggregate", "survival_fixed", "no aggregate", GREY),
    ("defaults", "scored_rising", "defaults, rising threshold", BLUE),
)
PANELS_PER_ROW = 2
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "dosa",  # the same study gives the same bytes
}


def panels(groups: Sequence[Group], title: str) -> tuple[Figure, Iterator[Axes]]:
    """Make one panel for each group under a common title, with the sources named below."""
    from matplotlib import pyplot

    columns = min(PANELS_PER_ROW, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4.6 * columns + 0.6, 3.1 * rows + 0.9), squeeze=False
    )
    axes = list(grid.flat)
    for spare in axes[len(groups) :]:
        spare.set_visible(False)
    for ax, group in zip(axes, groups, strict=False):
        ax.set_title(group.label, fontsize=9)
    width = 72 * columns
    figure.suptitle(textwrap.fill(title, width), fontsize=10)
    sources = "\n".join(
        textwrap.fill(f"{group.name}: {group.source}", 76 * columns) for group in groups
    )
    figure.supxlabel(sources, fontsize=7, color=GREY)
    return figure, iter(axes)


def percent_axis(ax: Axes, label: str, shown: Sequence[float]) -> None:
    """Label a logarithmic vertical axis of percentages and make room for what is `shown`."""
    positive = [value for value in shown if value > 0]
    ax.set_ylabel(label)
    ax.set_yscale("log")
    ax.set_ylim(min(positive, default=1.0) * 0.6, 150)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if tick > ax.get_ylim()[0]]
    ax.set_yticks(ticks, labels=[f"{tick:g}%" for tick in ticks])
    ax.set_yticks([], minor=True)


def draw_components(groups: Sequence[Group]) -> Figure | None:
    """Draw what is lost without each part of the certificate."""
    names = ["full certificate", "strength only", "no projection", "aggregate all", "no aggregate"]
    groups = [group for group in groups if values(group, "components", names[0], "survival_fixed")]
    if not groups:
        return None
    title = "What each part of the certificate is worth: keys that survive it (fewer is better)"
    figure, axes = panels(groups, title)
    for group, ax in zip(groups, axes, strict=False):
        bars = [mean(values(group, "components", name, "survival_fixed")) for name in names]
        drawn = ax.barh(names[::-1], bars[::-1], color=[GREY] * 4 + [RED])
        ax.bar_label(drawn, [f"{bar:.2f}%" for bar in bars[::-1]], padding=3, fontsize=8)
        ax.set_xlim(0, 118)
        ax.set_xticks([0, 25, 50, 75, 100], labels=["0", "25%", "50%", "75%", "100%"])
        ax.set_xlabel("survive the fixed threshold, share of visible keys")
    return figure


def draw_by_heads(groups: Sequence[Group]) -> Figure | None:
    """Draw survival by the number of retained heads."""
    lines: list[tuple[Group, list[int]]] = []
    for group in groups:
        cases = group.inputs[0]["cases"]
        heads = [case["options"]["heads"] for case in cases if case["facet"] == "retained"]
        if heads:
            lines.append((group, sorted(set(heads))))
    if not lines:
        return None
    title = "More retained heads, fewer full scores (lower is better, but every head costs time)"
    figure, axes = panels([group for group, _ in lines], title)
    for (group, widths), ax in zip(lines, axes, strict=False):
        shape = group.inputs[0]["shape"]
        least = 100 * shape["topk"] / shape["keys"]
        shown = [least]
        for rules, metric, label, colour, marker in LINES:
            shares = [mean(values(group, "retained", f"{rules}, r = {r}", metric)) for r in widths]
            ax.plot(widths, shares, color=colour, marker=marker, markersize=4, label=label)
            shown += shares
        ax.axhline(least, color=GREY, linestyle=":", label="K of N: the least possible")
        ax.set_xticks(widths)
        ax.set_xlabel(f"retained heads r, of H = {shape['heads']}")
        percent_axis(ax, "scored with all heads, pool included", shown)
        ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


def draw_by_layer(groups: Sequence[Group]) -> Figure | None:
    """Draw survival by layer."""
    groups = [group for group in groups if len(layers_of(group)) > 1]
    if not groups:
        return None
    title = "Keys that survive, by layer (lower is better)"
    figure, axes = panels(groups, title)
    for group, ax in zip(groups, axes, strict=False):
        layers = layers_of(group)
        shown: list[float] = []
        for name, metric, label, colour in COMPONENTS:
            shares = [
                mean(values(of_layer(group, layer), "components", name, metric)) for layer in layers
            ]
            ax.plot(layers, shares, color=colour, marker="o", markersize=3, label=label)
            shown += shares
        ax.set_xlabel("layer")
        ax.set_xticks(layers if len(layers) < 12 else layers[::2])
        percent_axis(ax, "share of visible keys", shown)
        ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


def draw_course(
    groups: Sequence[Group], what: str, title: str, label: str, fixed: str | None
) -> Figure | None:
    """Draw one quantity over the keys of a scan, and a metric that stays as it began."""
    groups = [group for group in groups if course(group, "defaults", what)]
    if not groups:
        return None
    figure, axes = panels(groups, title)
    for group, ax in zip(groups, axes, strict=False):
        scale = 100 if what == "scored" else 1
        for name, colour in (("paper's rules", RED), ("defaults", BLUE)):
            steps = [scale * value for value in course(group, name, what)]
            seen = [100 * (n + 0.5) / len(steps) for n in range(len(steps))]
            ax.plot(seen, steps, color=colour, label=f"{name}, rising threshold")
        level = [
            case[fixed]
            for one in group.inputs
            for case in one["cases"]
            if fixed and (case["facet"], case["name"]) == ("components", "full certificate")
        ]
        if level:
            label_fixed = "paper's rules, fixed threshold"
            ax.axhline(mean(level), color=RED, linestyle=":", label=label_fixed)
        ax.set_xlim(0, 100)
        ax.set_ylim(bottom=0)
        ax.set_xticks([0, 25, 50, 75, 100], labels=["0", "25%", "50%", "75%", "100%"])
        ax.set_xlabel("keys of the scan seen so far")
        ax.set_ylabel(label)
        ax.legend(fontsize=7)
    return figure


def draw_by_round(groups: Sequence[Group]) -> Figure | None:
    """Draw survival during a scan."""
    return draw_course(
        groups,
        "scored",
        "Survival during a scan while the threshold rises (lower is better)",
        "survive, % of the keys at that point",
        None,
    )


def draw_threshold(groups: Sequence[Group]) -> Figure | None:
    """Draw how far the threshold is below the true K-th score during a scan."""
    return draw_course(
        groups,
        "deficit",
        "How far the threshold is below the true K-th score during a scan (0 is perfect)",
        "deficit, standard deviations of a row's scores",
        "deficit_fixed",
    )


def draw_heat_map(groups: Sequence[Group]) -> Figure | None:
    """Draw the share of keys that the defaults spare, by layer and domain."""
    several = [
        group
        for group in groups
        if len(layers_of(group)) > 1 and len({one["domain"] for one in group.inputs}) > 1
    ]
    if not several:
        return None
    title = "Keys spared by the defaults with a rising threshold, % (more is better)"
    figure, axes = panels(several, title)
    for group, ax in zip(several, axes, strict=False):
        domains = sorted({str(one["domain"]) for one in group.inputs})
        layers = layers_of(group)
        cells = [
            [
                100
                - mean(
                    values(
                        of_layer(group, layer, domain), "components", "defaults", "scored_rising"
                    )
                )
                for layer in layers
            ]
            for domain in domains
        ]
        image = ax.imshow(cells, cmap="viridis", aspect="auto")
        middle = (image.get_clim()[0] + image.get_clim()[1]) / 2
        for row, line in enumerate(cells):
            for column, cell in enumerate(line):
                colour = "black" if cell > middle else "white"
                text = "" if math.isnan(cell) else f"{cell:.1f}"
                turned = 90 if len(layers) > 12 else 0
                ax.text(
                    column,
                    row,
                    text,
                    ha="center",
                    va="center",
                    rotation=turned,
                    fontsize=7,
                    color=colour,
                )
        ax.grid(visible=False)
        ax.set_xticks(range(len(layers)), labels=[str(layer) for layer in layers], fontsize=7)
        ax.set_yticks(range(len(domains)), labels=domains)
        ax.set_xlabel("layer")
        figure.colorbar(image, ax=ax, label="spared, %")
    return figure


def shorten(path: Path) -> None:
    """Round the coordinates of an SVG file to hundredths of a point: half the size."""
    text = path.read_text(encoding="utf-8")
    short = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text)
    path.write_text(short, encoding="utf-8")


FIGURES: dict[str, Callable[[Sequence[Group]], Figure | None]] = {
    "components": draw_components,
    "survival_by_heads": draw_by_heads,
    "survival_by_layer": draw_by_layer,
    "survival_by_round": draw_by_round,
    "threshold": draw_threshold,
    "heat_map": draw_heat_map,
}


def draw(groups: Sequence[Group], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draw every figure that the data allow.

    Parameters
    ----------
    groups : sequence of Group
        As from `read`.
    folder : Path
        Where the files go; made where it does not exist.
    formats : sequence of str
        Endings that matplotlib knows, such as ``svg`` and ``png``.

    Returns
    -------
    list of Path
        The files written, ``FIGURE.ENDING``.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with pyplot.rc_context(STYLE):
        for name, make in FIGURES.items():
            figure = make(groups)
            if figure is None:
                continue
            for ending in formats:
                path = folder / f"{name}.{ending}"
                metadata = {"Date": None, "Creator": "dosa.plot"} if ending == "svg" else None
                figure.savefig(path, dpi=130, metadata=metadata)
                if ending == "svg":
                    shorten(path)
                written.append(path)
            pyplot.close(figure)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m dosa.plot", description="Draw the figures of a study."
    )
    parser.add_argument("studies", type=Path, nargs="+", help="what dosa study --json wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the figures")
    parser.add_argument(
        "--format", nargs="+", default=["svg"], choices=["svg", "png", "pdf"], help="endings"
    )
    options = parser.parse_args(arguments)
    try:
        for path in draw(read(options.studies), options.out, options.format):
            print(path)
    except ImportError:
        sys.stderr.write(
            "dosa.plot: found no matplotlib, expected it installed: pip install 'dosa[plot]'\n"
        )
        return 2
    except (OSError, ValueError) as error:
        sys.stderr.write(f"dosa.plot: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
