# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

ROW_STATS_BYTES: int

def version() -> str: ...
def simd_target() -> str: ...

class Options:
    mode: int
    threshold: int
    index_form: int
    order: int
    heads: int
    threads: int
    forced_first: int
    forced_last: int
    retain: int
    projection: int
    allowance: int
    allowance_groups: int
    aggregate: int
    statistics: int
    workspace_mib: int
    def __init__(self) -> None: ...

class Problem:
    def __init__(
        self,
        q: object,
        k: object,
        k_scale: object,
        weights: object,
        k_start: object,
        k_end: object,
        index_offset: object,
        page_table: object,
        topk: int,
        page_size: int,
    ) -> None: ...
    @property
    def num_queries(self) -> int: ...
    @property
    def num_keys(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...

class Workspace:
    def __init__(self) -> None: ...
    @property
    def bytes(self) -> int: ...
    def clear(self) -> None: ...

class File:
    @property
    def metadata(self) -> dict[str, str]: ...
    def entries(self) -> list[tuple[str, str, tuple[int, ...], NDArray[Any]]]: ...

class Trace:
    @property
    def metadata(self) -> dict[str, str]: ...
    def entries(self) -> list[tuple[str, str, tuple[int, ...], NDArray[Any]]]: ...

def topk(
    problem: Problem,
    options: Options,
    workspace: Workspace,
    indices: object,
    scores: object,
    rows: object,
    progress: Callable[[int, int], object] | None,
) -> dict[str, Any]: ...
def scores(
    problem: Problem,
    options: Options,
    workspace: Workspace,
    row_begin: int,
    row_end: int,
    out: object,
) -> None: ...
def bounds(
    problem: Problem, options: Options, workspace: Workspace, row: int, out: object
) -> dict[str, Any]: ...
def verify(
    problem: Problem, options: Options, progress: Callable[[int, int], object] | None
) -> tuple[str, dict[str, Any], dict[str, Any]]: ...
def open_file(path: str) -> File: ...
def open_trace(path: str) -> Trace: ...
def write_file(
    path: str,
    entries: list[tuple[str, str, tuple[int, ...], NDArray[Any]]],
    metadata: dict[str, str],
) -> None: ...
