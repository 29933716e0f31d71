# SPDX-License-Identifier: Apache-2.0
"""What a call took, wherever it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dosa import _core
from dosa._errors import ArgumentError
from dosa._libraries import Library, describe
from dosa._results import ROW_FIELDS, Stats

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Counts:
    """Takes the counts of a call, and gives them to whoever waits for it.

    A call on a device returns before its work is done, so what it counts cannot be part of its
    result: it is written to device memory that this object holds. Of several calls the last one
    counts; one that is captured in a CUDA graph counts in every replay.

    Attributes
    ----------
    rows_array, stats_array : arrays of the library of `q`, or None
        The bytes of a `dosa_row_stats` for each row, and of `dosa_stats` (dosa.h), on the device.

    Examples
    --------
    >>> import numpy as np, dosa
    >>> q = np.full((2, 1, 16), 0x38, np.uint8)  # e4m3 code of 1.0
    >>> counts = dosa.Counts()
    >>> ones = np.ones(3, np.float32)
    >>> _ = dosa.topk(q, q[[0, 0, 0], 0], ones, ones[:2, None], topk=2, counts=counts)
    >>> counts.read()[0].visible
    6
    """

    def __init__(self) -> None:
        self.rows_array: Any = None
        self.stats_array: Any = None
        self._library: Library | None = None
        self._found: tuple[Stats, NDArray[Any]] | None = None

    def read(self) -> tuple[Stats, NDArray[Any]]:
        """Return the counts of the call and of each row, `dosa.ROW_FIELDS`; wait for its stream."""
        import numpy as np

        if self._found is not None:
            return self._found
        if self._library is None:
            raise ArgumentError.of("counts", "no call that was given them", "one")
        rows, stats = self._bytes(self.rows_array), self._bytes(self.stats_array)
        return Stats(**_core.read_stats(stats)), np.frombuffer(rows, list(ROW_FIELDS))

    def take(self, stats: Stats, rows: NDArray[Any]) -> None:
        """Hold what a call on the host has counted."""
        self._found = stats, rows

    def allocate(self, library: Library, queries: int) -> tuple[Any, Any]:
        """Make room for a call on a device; return rows and stats as the extension takes them."""
        self._library, self._found = library, None
        self.rows_array = library.empty((queries, _core.ROW_STATS_BYTES), "uint8")
        self.stats_array = library.empty((1, _core.STATS_BYTES), "uint8")
        return (
            describe("rows", self.rows_array, "code", library),
            describe("stats", self.stats_array, "code", library),
        )

    def _bytes(self, array: Any) -> bytes:
        assert self._library is not None
        library = self._library
        address, shape = describe("counts", array, "code", library)[:2]
        size = int(shape[0]) * int(shape[1])
        return _core.device_read(address, size, library.stream, library.device) if size else b""
