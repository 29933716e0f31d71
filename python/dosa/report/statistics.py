# SPDX-License-Identifier: Apache-2.0
"""Medians, spreads and means of samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def quantile(samples: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation, as `dosa bench` does."""
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def median(samples: Sequence[float]) -> float:
    """Return the median."""
    return quantile(samples, 0.5)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, which treats twice as fast and half as fast alike."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean."""
    listed = list(values)
    return sum(listed) / len(listed)


@dataclass(frozen=True)
class Range:
    """A quantity that was measured several times."""

    middle: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Range:
        """Return the median, the least and the greatest."""
        return cls(median(samples), min(samples), max(samples), len(samples))

    @property
    def below_one(self) -> bool:
        """True where every sample was below 1: slower, whatever the spread."""
        return self.high < 1.0


def ratios(slow: Sequence[float], fast: Sequence[float]) -> Range:
    """Return how many times as fast, repetition by repetition: both met the same machine."""
    return Range.of([a / b for a, b in zip(slow, fast, strict=False)])
