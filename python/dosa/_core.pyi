# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

ROW_STATS_BYTES: int
STATS_BYTES: int
HAS_DEVICE: bool

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
    score_model: int
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

class DeviceProblem:  # of descriptions of arrays; Device* and device_* where HAS_DEVICE
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

class DeviceCache:
    def __init__(self, kv_cache: object, page_size: int, head_dim: int, written: bool) -> None: ...

class DevicePagedProblem:
    def __init__(
        self,
        q: object,
        cache: DeviceCache,
        weights: object,
        context_lens: object,
        block_table: object,
        index_offset: object,
        slot_table: object,
        states: object,
        witness_index: object,
        topk: int,
        slot_page_size: int,
        max_context: int,
    ) -> None: ...
    @property
    def num_rows(self) -> int: ...

class Workspace:
    def __init__(self) -> None: ...
    @property
    def bytes(self) -> int: ...
    def clear(self) -> None: ...

class Cache:
    def __init__(self, kv_cache: object, page_size: int, head_dim: int, written: bool) -> None: ...

class PagedProblem:
    def __init__(
        self,
        q: object,
        cache: Cache,
        weights: object,
        context_lens: object,
        block_table: object,
        index_offset: object,
        slot_table: object,
        states: object,
        witness_index: object,
        topk: int,
        slot_page_size: int,
        max_context: int,
    ) -> None: ...
    @property
    def num_rows(self) -> int: ...

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
def device_workspace_bytes(problem: DeviceProblem, options: Options, scores: bool) -> int: ...
def device_topk(
    problem: DeviceProblem,
    options: Options,
    indices: object,
    scores: object,
    rows: object,
    stats: object,
    workspace: object,
    stream: int,
) -> None: ...
def device_verify(problem: DeviceProblem, options: Options) -> tuple[str, dict[str, Any]]: ...
def device_read(address: int, count: int, stream: int, device: int) -> bytes: ...
def read_stats(bytes: bytes) -> dict[str, Any]: ...
def device_scores(
    problem: DeviceProblem,
    options: Options,
    row_begin: int,
    row_end: int,
    out: object,
    workspace: object,
    stream: int,
) -> None: ...
def device_paged_workspace_bytes(problem: DevicePagedProblem, options: Options) -> int: ...
def device_paged_topk(
    problem: DevicePagedProblem,
    options: Options,
    indices: object,
    scores: object,
    workspace: object,
    stream: int,
) -> None: ...
def device_paged_scores(problem: DevicePagedProblem, out: object, stream: int) -> None: ...
def device_paged_gather(
    cache: DeviceCache,
    block_table: object,
    cu_seq_lens: object,
    k: object,
    k_scale: object,
    num_keys: int,
    stream: int,
) -> None: ...
def device_paged_insert(
    cache: DeviceCache, k: object, slot_mapping: object, scale_format: int, stream: int
) -> None: ...
def device_allocate(shape: list[int], dtype: str, device: int, stream: int) -> tuple[int, Any]: ...
def device_order_streams(earlier: int, later: int, device: int) -> None: ...
def device_of_pointer(address: int) -> int: ...
def bounds(
    problem: Problem, options: Options, workspace: Workspace, row: int, out: object
) -> dict[str, Any]: ...
def verify(
    problem: Problem, options: Options, progress: Callable[[int, int], object] | None
) -> tuple[str, dict[str, Any], dict[str, Any]]: ...
def paged_topk(
    problem: PagedProblem,
    options: Options,
    workspace: Workspace,
    indices: object,
    scores: object,
    rows: object,
) -> dict[str, Any]: ...
def paged_gather(
    cache: Cache,
    block_table: object,
    cu_seq_lens: object,
    k: object,
    k_scale: object,
    num_keys: int,
    threads: int,
) -> None: ...
def paged_insert(
    cache: Cache, k: object, slot_mapping: object, scale_format: int, threads: int
) -> None: ...
def witness_bytes(topk: int) -> int: ...
def witness_set(state: object, topk: int, ids: object) -> None: ...

class Lists:
    def __init__(self, scores: object, ids: object) -> None: ...
    @property
    def num_rows(self) -> int: ...

class DeviceLists:
    def __init__(self, scores: object, ids: object) -> None: ...
    @property
    def num_rows(self) -> int: ...

def device_merge(
    lists: DeviceLists, topk: int, order: int, indices: object, scores: object, stream: int
) -> None: ...
def merge(
    lists: Lists, topk: int, order: int, threads: int, indices: object, scores: object
) -> None: ...
def open_file(path: str) -> File: ...
def open_trace(path: str) -> Trace: ...
def write_file(
    path: str,
    entries: list[tuple[str, str, tuple[int, ...], NDArray[Any]]],
    metadata: dict[str, str],
) -> None: ...
