# SPDX-License-Identifier: Apache-2.0
"""Numbers as text."""

from __future__ import annotations

import math

from dosa.report.blocks import Value
from dosa.report.statistics import Range


def significant(value: float, digits: int = 3) -> str:
    """Write a number with that many significant digits and no exponent."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def percent(share: float | None) -> str:
    """Write a share as percent."""
    if share is None:
        return "-"
    return f"{100 * share:.2f}%" if share < 0.1 else f"{100 * share:.1f}%"


def times(one: Range | None) -> str | Value:
    """Write a speed-up and its range; a loss where every repetition was slower."""
    if one is None:
        return "-"
    text = f"{one.middle:.2f} ({one.low:.2f}-{one.high:.2f})"
    return Value(text, loss=one.middle < 1)


def megabytes(count: float) -> str:
    """Write bytes as MiB."""
    return f"{significant(count / (1 << 20))} MiB"


def span(values: list[float]) -> str:
    """Write the least and the greatest of some ratios."""
    if not values:
        return "not measured"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{min(values):.2f}-{max(values):.2f}"
