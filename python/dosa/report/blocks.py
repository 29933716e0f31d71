# SPDX-License-Identifier: Apache-2.0
"""What a page is made of, without a word about how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A chart, with one or two sentences that say what it shows and what is better."""

    name: str
    """The file's name, without its ending."""
    sentence: str
    svg: str


@dataclass(frozen=True)
class Value:
    """A table's cell that is more than text."""

    text: str
    loss: bool = False
    cell: str = ""
    """The raw result that it comes from."""
    file: str = ""
    """Another program's result that it comes from, a path in the folder of the raw results."""


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column names them."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Value]]
    prose: frozenset[int] = frozenset()
    """Columns of running text."""
    folded: bool = False
    """Long and only to look things up in."""


Block = Text | Figure | Table


@dataclass
class Section:
    """A part of the page."""

    key: str
    title: str
    blocks: list[Block] = field(default_factory=list)
