# SPDX-License-Identifier: Apache-2.0
"""Options by name, as the library wants them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal, TypedDict, get_args

from dosa import _core
from dosa._errors import ArgumentError, ArgumentTypeError

Mode = Literal["auto", "base", "full", "screen", "dosa"]
Threshold = Literal["rising", "fixed"]
IndexForm = Literal["absolute", "relative", "offset", "slot"]
Order = Literal["id", "score"]
Retain = Literal["uncertainty", "strength"]
Allowance = Literal["best", "triangle", "joint", "grouped"]
Aggregate = Literal["support", "two", "absolute", "all", "none"]
Statistics = Literal["hard", "random", "seeds"]
ScoreModel = Literal["default", "ieee", "sm90", "mma_f16", "mma_fp8"]
ProgressFn = Callable[[int, int], object]


class Options(TypedDict, total=False):
    """Keyword options of every call; none but the score model changes which keys are the K best.

    The documentation of `dosa.topk` says what each one does.
    """

    mode: Mode
    threshold: Threshold
    order: Order
    index_form: IndexForm
    forced_first: int
    forced_last: int
    heads: int
    threads: int
    workspace_mib: int
    progress: ProgressFn | None
    retain: Retain
    projection: bool
    allowance: Allowance
    allowance_groups: int
    aggregate: Aggregate
    statistics: Statistics
    score_model: ScoreModel


# The place of a word in its tuple is its value in dosa.h.
_WORDS: dict[str, tuple[str, ...]] = {
    "mode": get_args(Mode),
    "threshold": get_args(Threshold),
    "index_form": get_args(IndexForm),
    "order": get_args(Order),
    "retain": get_args(Retain),
    "allowance": get_args(Allowance),
    "aggregate": get_args(Aggregate),
    "statistics": get_args(Statistics),
    "score_model": get_args(ScoreModel),
}
_INTEGERS = ("heads", "threads", "forced_first", "forced_last", "allowance_groups")
_LEAST_MIB = 16
_MOST_MIB = 2**20
_INT32_MAX = 2**31 - 1


def integer(name: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int in [low, high]; a bool or a float is no integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError.of(name, f"{type(value).__name__} {value!r:.40}", "an integer")
    number = operator.index(value)
    if not low <= number <= high:
        raise ArgumentError.of(name, str(number), f"{low} to {high}")
    return number


def int32(name: str, value: object) -> int:
    """Return `value` as an int that fits 32 bits; the library knows the range that is allowed."""
    return integer(name, value, -_INT32_MAX, _INT32_MAX)


def word(name: str, value: object, words: tuple[str, ...]) -> int:
    """Return the place of `value` among `words`."""
    if not isinstance(value, str):
        expected = f"one of {', '.join(words)}"
        raise ArgumentTypeError.of(name, f"{type(value).__name__} {value!r:.40}", expected)
    if value not in words:
        raise ArgumentError.of(name, repr(value), f"one of {', '.join(words)}")
    return words.index(value)


def _flag(name: str, value: object) -> int:
    if not isinstance(value, bool):
        raise ArgumentTypeError.of(name, f"{type(value).__name__} {value!r:.40}", "True or False")
    return int(value)


def parse(options: Options) -> tuple[_core.Options, ProgressFn | None]:
    """Return the options as the library wants them, and the progress function."""
    result = _core.Options()
    given: dict[str, Any] = dict(options)
    progress = given.pop("progress", None)
    if progress is not None and not callable(progress):
        raise ArgumentTypeError.of("progress", type(progress).__name__, "a function or None")
    for name, value in given.items():
        if name in _WORDS:
            setattr(result, name, word(name, value, _WORDS[name]))
        elif name in _INTEGERS:
            setattr(result, name, int32(name, value))
        elif name == "projection":
            result.projection = _flag(name, value)
        elif name == "workspace_mib":
            result.workspace_mib = integer(name, value, _LEAST_MIB, _MOST_MIB)
        else:
            known = ", ".join(sorted(Options.__annotations__))
            raise ArgumentTypeError.of("options", repr(name), f"some of {known}")
    return result, progress


def check_rows(rows: tuple[int, int] | None, num_queries: int) -> tuple[int, int]:
    """Return the first row and one past the last; None stands for all."""
    begin, end = (0, num_queries) if rows is None else rows
    begin, end = int32("rows[0]", begin), int32("rows[1]", end)
    if not 0 <= begin <= end <= num_queries:
        raise ArgumentError.of("rows", f"[{begin}, {end})", f"a part of [0, {num_queries})")
    return begin, end
