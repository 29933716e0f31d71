# SPDX-License-Identifier: Apache-2.0
"""What a selection returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

ArrayT = TypeVar("ArrayT")


class Stats(NamedTuple):
    """What one call took. Counts are of (row, key) pairs unless they say rows."""

    rows: int
    """Q."""
    visible: int
    """Keys in the windows."""
    screened: int
    """Keys whose bound was computed."""
    fully_scored: int
    """Keys scored with all heads: seeds, sample and survivors."""
    records: int
    """Scores kept for selection."""
    rounds: int
    """Times the records were reduced and the threshold raised."""
    fallback_rows: int
    """Rows scored without screening because they had to be (NaN, Inf)."""
    short_rows: int
    """Rows with at most K visible keys: nothing to select."""
    screened_rows: int
    """Rows that used a certificate."""
    mean_slack: float
    """Mean of bound - score over the survivors that were scored, in score units."""
    mean_deficit: float
    """Mean of K-th score - threshold in use over the screened pairs, in score units."""
    seconds: float
    """Wall time of the call."""


class TopK(NamedTuple, Generic[ArrayT]):
    """The K best keys of every query, exactly.

    Arrays are of the library and on the device of `q`: torch tensors, CuPy or JAX arrays, else
    NumPy arrays on the host and `DeviceArray` (DLPack, `__cuda_array_interface__`) on a device.
    """

    indices: ArrayT
    """(Q, K) int32: min(K, window length) ids, ascending unless order="score", then -1."""
    scores: ArrayT | None
    """(Q, K) float32 in the order of `indices`, NaN behind the last; None unless asked for."""
    stats: Stats | None
    """Counts of the whole call; None on a device, whose results nobody waits for:
    give the call a `dosa.Counts`."""
    rows: NDArray[Any] | None
    """(Q,) structured: counts of each row, `dosa.ROW_FIELDS`; None on a device."""


# dosa_row_stats of dosa.h, field by field.
ROW_FIELDS: tuple[tuple[str, str], ...] = (
    ("visible", "<i8"),
    ("screened", "<i8"),
    ("fully_scored", "<i8"),
    ("records", "<i8"),
    ("rounds", "<i8"),
    ("fallback", "<i4"),
    ("heads", "<i4"),
    ("first_threshold", "<f4"),
    ("last_threshold", "<f4"),
    ("kth_score", "<f4"),
    ("mean_slack", "<f4"),
    ("mean_deficit", "<f4"),
    ("reserved", "<i4"),
)
