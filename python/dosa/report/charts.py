# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text: no script, no font, no colour of its own (`theme` has them)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dosa.report.statistics import Range

_WIDTH = 760
_LEGEND_PARTS = 6  # names in a line of the legend of parts
_LETTER = 7.1  # width of a letter at the text's size, on the safe side
_SERIES = {"base": 0, "full": 1, "screen": 2, "auto": 3, "dosa": 4, "sgemm": 5}


def style_of(name: str, at: int = 0) -> int:
    """Return the style of a series: that of a mode in all charts, of "over base" that of base."""
    return _SERIES.get(name.removeprefix("over "), 7 - at % 2)


@dataclass(frozen=True)
class Series:
    """A line: points (x, y), and which style it has."""

    name: str
    style: int
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def dot_plot(title: str, axis: str, rows: Sequence[tuple[str, Sequence[tuple[str, Range]]]]) -> str:
    """Draw ranges on a logarithmic axis, one row each, with a line at 1."""
    names = list(dict.fromkeys(name for _, ranges in rows for name, _ in ranges))
    ranges = [one for _, row in rows for _, one in row]
    left = max(len(label) for label, _ in rows) * _LETTER + 12
    low = min(0.9, *(one.low for one in ranges)) / 1.03
    high = max(1.25, *(one.high for one in ranges)) * 1.03
    step = 8 + 9 * max(1, len(names))
    top, bottom = 34.0, 34.0 + step * len(rows)

    def x(value: float) -> float:
        return left + (_WIDTH - 20 - left) * math.log(value / low) / math.log(high / low)

    body = [_legend(names, left)]
    for tick in _apart(_ratio_ticks(low, high), x):
        body.append(_grid_line(x(tick), top, x(tick), bottom, strong=tick == 1))
        body.append(_text(x(tick), bottom + 15, _short(tick), "middle"))
    for n, (label, row) in enumerate(rows):
        y = top + step * (n + 0.5)
        body.append(_text(left - 8, y + 4, label, "end"))
        for name, one in row:
            style = style_of(name, names.index(name))
            at = y + 9 * (names.index(name) - (len(names) - 1) / 2)
            tip = f"{label}, {name}: {one.middle:.2f} ({one.low:.2f} to {one.high:.2f})"
            body.append(
                f'<line class="k{style}" x1="{x(one.low):.1f}" y1="{at:.1f}" '
                f'x2="{x(one.high):.1f}" y2="{at:.1f}"/>'
            )
            body.append(_marker(style, x(one.middle), at, tip))
    body.append(_text((left + _WIDTH) / 2, bottom + 32, axis, "middle", "axis"))
    return _svg(title, bottom + 40, body)


def bar_chart(
    title: str, axis: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str
) -> str:
    """Draw horizontal bars from 0, with their values behind them."""
    left = max(len(name) for _, bars in groups for name, _ in bars) * _LETTER + 14
    highest = max(value for _, bars in groups for _, value in bars)
    body = []
    y = 8.0
    for label, bars in groups:
        body.append(_text(4, y + 14, label, "start", "head"))
        y += 22
        for name, value in bars:
            width = (_WIDTH - 110 - left) * value / highest
            style = style_of(name)
            body.append(_text(left - 8, y + 13, name, "end"))
            body.append(
                f'<rect class="f{style}" x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" '
                'height="16"/>'
            )
            body.append(_text(left + width + 6, y + 13, f"{_significant(value)} {unit}"))
            y += 21
        y += 8
    body.append(_text((left + _WIDTH) / 2, y + 8, axis, "middle", "axis"))
    return _svg(title, y + 18, body)


def stacked_bars(
    title: str,
    axis: str,
    order: Sequence[str],
    rows: Sequence[tuple[str, tuple[Sequence[tuple[str, float]], float]]],
) -> str:
    """Draw bars of parts, one row each, with a mark at the row's floor where it is above 0."""
    seen = {name for _, (parts, _) in rows for name, _ in parts}
    names = [name for name in order if name in seen]
    left = max(len(label) for label, _ in rows) * _LETTER + 14
    highest = max(max(sum(value for _, value in parts), floor) for _, (parts, floor) in rows)
    lines = -(-len(names) // _LEGEND_PARTS)
    body = [
        _shades(names[n * _LEGEND_PARTS : (n + 1) * _LEGEND_PARTS], n * _LEGEND_PARTS, 18.0 * n + 4)
        for n in range(lines)
    ]
    y = 18.0 * lines + 18
    for label, (parts, floor) in rows:
        body.append(_text(left - 8, y + 14, label, "end"))
        x = left
        for name, value in parts:
            width = (_WIDTH - 80 - left) * value / highest
            shade, pale = names.index(name) % 8, 0.5 if names.index(name) >= 8 else 1.0
            body.append(
                f'<rect class="f{shade}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="18" '
                f'opacity="{pale}"><title>{escape(label)}, {escape(name)}: '
                f"{_significant(value)} ms</title></rect>"
            )
            x += width
        total = sum(value for _, value in parts)
        body.append(_text(x + 6, y + 14, f"{_significant(total)}"))
        if floor > 0:
            at = left + (_WIDTH - 80 - left) * floor / highest
            body.append(
                f'<line class="one" x1="{at:.1f}" y1="{y - 2:.1f}" x2="{at:.1f}" '
                f'y2="{y + 20:.1f}"/>'
            )
        y += 25
    body.append(_text((left + _WIDTH) / 2, y + 10, axis, "middle", "axis"))
    return _svg(title, y + 20, body)


def _shades(names: Sequence[str], first: int, y: float) -> str:
    parts = []
    for n, name in enumerate(names):
        shade, pale = (first + n) % 8, 0.5 if first + n >= 8 else 1.0
        x = 8.0 + n * (_WIDTH - 16) / _LEGEND_PARTS
        parts.append(
            f'<rect class="f{shade}" x="{x:.1f}" y="{y:.1f}" width="11" height="11" '
            f'opacity="{pale}"/>'
        )
        parts.append(_text(x + 16, y + 10, name))
    return "\n".join(parts)


def line_chart(
    title: str,
    axes: tuple[str, str],
    series: Sequence[Series],
    *,
    marks: tuple[Callable[[float], str], Callable[[float], str]],
    log_x: bool = True,
    reference: float | None = None,
) -> str:
    """Draw lines, y logarithmic; `marks` writes the values of both axes."""
    xs = sorted({x for one in series for x, _ in one.points})
    ys = [y for one in series for _, y in one.points]
    if reference is not None:
        ys.append(reference)
    low, high = min(ys) / 1.1, max(ys) * 1.1
    left, right, top, bottom = 76.0, _WIDTH - 20.0, 34.0, 330.0

    def place(value: float) -> float:
        return math.log(value) if log_x else value

    def at_x(value: float) -> float:
        share = (place(value) - place(xs[0])) / ((place(xs[-1]) - place(xs[0])) or 1.0)
        return left + 12 + (right - left - 24) * share

    def at_y(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    body = [_legend([one.name for one in series], left, [one.style for one in series])]
    for tick in _apart(_y_ticks(low, high), at_y, 18):
        strong = reference is not None and tick == reference
        body.append(_grid_line(left, at_y(tick), right, at_y(tick), strong=strong))
        body.append(_text(left - 7, at_y(tick) + 4, marks[1](tick), "end"))
    for x in _apart(xs, at_x):
        body.append(_grid_line(at_x(x), bottom, at_x(x), bottom + 4))
        body.append(_text(at_x(x), bottom + 18, marks[0](x), "middle"))
    for one in series:
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in one.points)
        dash = ' stroke-dasharray="6 4"' if one.dashed else ""
        body.append(f'<polyline class="l{one.style}"{dash} points="{path}"/>')
        for x, y in one.points:
            tip = f"{one.name}, {marks[0](x)}: {marks[1](y)}"
            body.append(_marker(one.style, at_x(x), at_y(y), tip))
    body.append(_text((left + right) / 2, bottom + 38, axes[0], "middle", "axis"))
    middle = (top + bottom) / 2
    body.append(
        f'<text class="axis" text-anchor="middle" transform="rotate(-90 14 {middle:.1f})" '
        f'x="14" y="{middle:.1f}">{escape(axes[1])}</text>'
    )
    return _svg(title, bottom + 46, body)


def heat_map(
    title: str,
    axes: tuple[str, str],
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float | None]]],
) -> str:
    """Draw ratios as coloured cells with their values: blue above 1, orange below."""
    left, top = 86.0, 8.0
    lines = max(len(name.split()) for name in columns)
    header = 13.0 * lines + 6
    width = min(96.0, (_WIDTH - left - 8) / len(columns))
    values = [abs(math.log(v)) for _, row in rows for v in row if v is not None]
    most = max([math.log(1.5), *values])
    body = []
    for n, name in enumerate(columns):
        for line, word in enumerate(name.split()):
            body.append(_text(left + (n + 0.5) * width, top + 11 + 13 * line, word, "middle"))
    for n, (label, row) in enumerate(rows):
        y = top + header + 18 * n
        body.append(_text(left - 8, y + 13, label, "end"))
        for m, value in enumerate(row):
            x = left + m * width
            fill, ink = _heat(value, most)
            tip = f"{label}, {columns[m]}: {'not measured' if value is None else f'{value:.3f}'}"
            body.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="17" '
                f'fill="{fill}"><title>{escape(tip)}</title></rect>'
            )
            if value is not None:
                body.append(
                    f'<text x="{x + width / 2 - 0.5:.1f}" y="{y + 12.5:.1f}" fill="{ink}" '
                    f'text-anchor="middle" style="fill:{ink}">{value:.2f}</text>'
                )
    bottom = top + header + 18 * len(rows)
    middle = top + header + 9 * len(rows)
    body.append(_text(left + width * len(columns) / 2, bottom + 16, axes[0], "middle", "axis"))
    body.append(
        f'<text class="axis" text-anchor="middle" transform="rotate(-90 14 {middle:.1f})" '
        f'x="14" y="{middle:.1f}">{escape(axes[1])}</text>'
    )
    return _svg(title, bottom + 24, body)


def _heat(value: float | None, most: float) -> tuple[str, str]:
    """Return fill and ink; both are fixed, so that they fit each other on any background."""
    if value is None:
        return "#808080", "#ffffff"
    share = min(1.0, abs(math.log(value)) / most)
    strong = (9, 105, 218) if value >= 1 else (207, 82, 0)
    colour = [round(246 + (part - 246) * (0.08 + 0.92 * share)) for part in strong]
    ink = "#ffffff" if share > 0.55 else "#1b1f24"
    return "#" + "".join(f"{part:02x}" for part in colour), ink


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'role="img" aria-label="{escape(title)}" class="chart">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *body, "</svg>"]) + "\n"


def _legend(names: Sequence[str], left: float, styles: Sequence[int] | None = None) -> str:
    parts = []
    x = left
    for n, name in enumerate(names):
        style = styles[n] if styles else style_of(name, n)
        parts.append(_marker(style, x + 5, 14, name))
        parts.append(_text(x + 14, 18, name))
        x += 30 + _LETTER * len(name)
    return "\n".join(parts)


def _marker(style: int, x: float, y: float, tip: str) -> str:
    """Return a mark whose shape tells the series apart without its colour."""
    title = f"<title>{escape(tip)}</title>"
    r = 4.2
    if style % 5 == 0:
        return f'<circle class="f{style}" cx="{x:.1f}" cy="{y:.1f}" r="{r}">{title}</circle>'
    corners = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -r - 1), (r + 1, r), (-r - 1, r)],
        3: [(0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)],
        4: [(0, r + 1), (r + 1, -r), (-r - 1, -r)],
    }[style % 5]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="f{style}" points="{points}">{title}</polygon>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    names = f' class="{kind}"' if kind else ""
    return f'<text{names} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid_line(x1: float, y1: float, x2: float, y2: float, *, strong: bool = False) -> str:
    name = "one" if strong else "grid"
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return round numbers, more of them near 1."""
    steps = (1, 2, 3, 5, 7)
    round_ones = [step * 10.0**n for n in range(-2, 4) for step in steps]
    ticks = sorted({*round_ones, 0.8, 0.9, 1.25, 1.5, 2.5, 4, 6, 8, 15})
    return [tick for tick in ticks if low <= tick <= high]


def _apart(ticks: list[float], place: Callable[[float], float], least: float = 34) -> list[float]:
    """Leave out ticks whose numbers would touch."""
    kept = [1.0] if 1 in ticks else []  # the last to go
    for tick in ticks:
        if all(abs(place(tick) - place(other)) >= least for other in kept):
            kept.append(tick)
    return sorted(kept)


def _y_ticks(low: float, high: float) -> list[float]:
    if high / low < 60:
        return _ratio_ticks(low, high)
    return [10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _short(value: float) -> str:
    return f"{value:g}"


def _significant(value: float) -> str:
    """Write a number with three significant digits and no exponent."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 6)}f}"
