# SPDX-License-Identifier: Apache-2.0
"""What `dosa.verify` and `dosa.explain` return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dosa._results import Stats

ROLES = ("zero weight", "retained", "projected", "aggregate 1", "aggregate 2", "ignored")


@dataclass(frozen=True, slots=True)
class Verification:
    """What an audited run found. Counts are of (row, key) pairs unless they say rows."""

    rows: int
    """Q."""
    rows_different: int
    """Rows whose ids or scores differ from those of every key scored."""
    first_different: int
    """The first such row, or -1."""
    rejected: int
    """Pairs rejected by their bound."""
    violations: int
    """Rejected pairs whose bound lies below their score."""
    min_margin: float
    """Smallest bound - score over the rejected pairs, in score units; +Inf where none."""
    witness_row: int
    """Where the smallest margin was seen, or -1."""
    witness_key: int
    """Its key, or -1."""
    witness_bound: float
    """Its bound."""
    witness_score: float
    """Its score."""
    stats: Stats
    """Counts of the pruned run; its time includes the audit."""


@dataclass(frozen=True, slots=True)
class DeviceVerification:
    """What an audited run on a device found: the bounds of all pairs, and the answers."""

    rows: int
    """Q."""
    rows_different: int
    """Rows whose ids or scores differ from those of every key scored."""
    first_different: int
    """The first such row, or -1."""
    visible: int
    """Pairs whose key is in the row's window."""
    bounded: int
    """Visible pairs with a bound; the others are never rejected."""
    rejected: int
    """Bounded pairs that the row's K-th score rejects."""
    violations: int
    """Bounded pairs that a threshold equal to their own score would reject."""
    min_margin: float
    """Smallest distance of a bound to where its score would reject it; +Inf where none."""
    witness_row: int
    """Where the smallest margin was seen, or -1."""
    witness_key: int
    """Its key, or -1."""
    witness_bound: float
    """Its bound."""
    witness_score: float
    """Its score."""
    most_used: float
    """Largest share of a pair's allowance that its score needed."""
    used_row: int
    """Where it was seen, or -1."""
    used_key: int
    """Its key, or -1."""
    seconds: float
    """Wall time of the audit."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of one row: how its bound treats each head (docs/math.md)."""

    valid: bool
    """False: the row cannot be screened (non-finite query or weight)."""
    num_positive: int
    """Heads with a positive weight."""
    num_negative: int
    """Heads with a negative weight."""
    num_zero: int
    """Heads with weight zero."""
    num_retained: int
    """r, heads that are computed as in the score."""
    num_omitted_positive: int
    """Positive heads of which only the most they can add is known."""
    num_aggregated: int
    """Negative heads that are subtracted together."""
    num_ignored: int
    """Negative heads of which nothing is subtracted."""
    screening_rows: int
    """Dot products per key: r and the auxiliary rows."""
    role: tuple[int, ...]
    """(H,) index into `dosa.ROLES`."""
    anchor: tuple[int, ...]
    """(H,) the retained head that a projected head leans on, else -1."""
    weight: tuple[float, ...]
    """(H,) w_h."""
    folded_weight: tuple[float, ...]
    """(H,) the weight of a retained head with what it carries for others, else 0."""
    norm: tuple[float, ...]
    """(H,) |q_h|, in units of the e4m3 payload."""
    active: tuple[float, ...]
    """(H,) share of the sample on which the dot product is positive; NaN where no sample."""
    allowance: float
    """E_P: score units per unit of key norm."""
    guard: float
    """Everything added for rounding, same units."""
    threshold: float
    """The threshold when the certificate was made; -Inf where fewer than K keys were scored."""
    bounds: NDArray[Any]
    """(N,) float32: the bound of every visible key; +Inf for keys that may not be pruned and
    outside the window."""
