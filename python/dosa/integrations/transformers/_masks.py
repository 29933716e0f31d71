# SPDX-License-Identifier: Apache-2.0
"""Attention masks by the row, so that no (S, T) mask need exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# Elements of a mask that are looked at together.
TILE_ELEMENTS = 1 << 24
# An additive mask forbids a key by a value at or below this; a bias above it is another thing.
FORBIDDEN = -1e4


@dataclass(frozen=True)
class Spans:
    """Which keys the queries of a mask see; B sequences, S queries, T keys."""

    first: Tensor
    """(B, S) int64: the first key, T where there is none."""
    end: Tensor
    """(B, S) int64: one past the last key, 0 where there is none."""
    count: Tensor
    """(B, S) int64: the number of keys."""
    seen: Tensor
    """(B, T) bool: keys that any query sees."""


class Mask:
    """A boolean mask (B, S, T), made for some rows at a time; True is seen."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        self._spans: Spans | None = None

    def rows(self, begin: int, end: int, columns: int) -> Tensor:
        """Return rows [begin, end) of the first `columns` keys, (B, end - begin, columns) bool."""
        raise NotImplementedError

    def spans(self) -> Spans:
        """Return what the rows see, from one pass over the mask; the result is kept."""
        if self._spans is None:
            self._spans = self._measure()
        return self._spans

    def _measure(self) -> Spans:
        import torch

        batch, queries, keys = self.shape
        step = max(1, TILE_ELEMENTS // max(1, batch * keys))
        parts: list[tuple[Tensor, ...]] = []
        seen = None
        for begin in range(0, queries, step):
            rows = self.rows(begin, min(queries, begin + step), keys)
            # argmax of bytes finds the first; of the reversed row, the last.
            first = rows.byte().argmax(-1)
            last = keys - 1 - rows.flip(-1).byte().argmax(-1)
            count = rows.sum(-1)
            none = count == 0
            parts.append((first.masked_fill(none, keys), (last + 1).masked_fill(none, 0), count))
            any_row = rows.any(1)
            seen = any_row if seen is None else seen | any_row
        if seen is None:
            empty = torch.empty((batch, 0), dtype=torch.int64)
            return Spans(empty, empty, empty, torch.zeros((batch, keys), dtype=torch.bool))
        first, end, count = (torch.cat(columns, 1) for columns in zip(*parts, strict=True))
        return Spans(first, end, count, seen)


class TensorMask(Mask):
    """A mask that exists: boolean, or additive with 0 for seen."""

    def __init__(self, mask: Tensor, batch: int) -> None:
        super().__init__((batch, mask.shape[-2], mask.shape[-1]))
        self._mask = mask

    def has_bias(self) -> bool:
        """Return whether an additive mask holds anything but 0 and "forbidden"."""
        if not self._mask.is_floating_point():
            return False
        step = max(1, TILE_ELEMENTS // max(1, self._mask.shape[0] * self.shape[2]))
        tiles = self._mask.split(step, dim=1)
        return any(bool(((tile != 0) & ~(tile <= FORBIDDEN)).any()) for tile in tiles)

    def rows(self, begin: int, end: int, columns: int) -> Tensor:
        """Return some rows, see `Mask.rows`."""
        import torch

        rows = self._mask[:, begin:end, :columns]
        seen = rows if rows.dtype == torch.bool else rows == 0
        return seen.expand(self.shape[0], -1, -1)


class LazyMask(Mask):
    """The mask that transformers would make, by the same function, for some rows at a time.

    It stands for the (B, 1, S, T) tensor in the calls of a model: all that a model does with the
    tensor before it reaches an indexer or an attention function is to drop the dimension of heads.
    """

    def __init__(self, make: Callable[..., Tensor], arguments: dict[str, Any]) -> None:
        super().__init__(tuple(arguments[n] for n in ("batch_size", "q_length", "kv_length")))
        self._make = make
        self._arguments = arguments

    def rows(self, begin: int, end: int, columns: int) -> Tensor:
        """Return some rows, see `Mask.rows`."""
        moved = {
            "q_length": end - begin,
            "q_offset": self._arguments.get("q_offset", 0) + begin,
            "kv_length": columns,
            "allow_is_causal_skip": False,
        }
        rows = self._make(**{**self._arguments, **moved})
        return rows.expand(self.shape[0], 1, end - begin, columns)[:, 0]

    def __getitem__(self, index: object) -> LazyMask:
        everything = slice(None)
        if index != (everything, 0, everything, everything):
            raise TypeError(f"mask: found the index {index!r}, expected [:, 0, :, :]")
        return self

    def tensor(self) -> Tensor:
        """Return the whole (B, 1, S, T) mask, for code that needs it."""
        return self.rows(0, self.shape[1], self.shape[2]).unsqueeze(1)


def lazy_mask(**arguments: Any) -> LazyMask:
    """Make a mask: registered with transformers as the mask function of the "dosa" attention."""
    from transformers.masking_utils import sdpa_mask

    return LazyMask(sdpa_mask, arguments)
