# SPDX-License-Identifier: Apache-2.0
"""Decode steps and their caches on a CUDA device: enqueued on the caller's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dosa import _core
from dosa._device import Selected, Workspaces
from dosa._libraries import Library, describe, library_of
from dosa._results import TopK

if TYPE_CHECKING:
    from dosa._decode import StepOptions


def _problem(
    library: Library,
    arrays: tuple[object, object, object, object, object],
    topk: int,
    step: StepOptions,
    numbers: tuple[int, int, int],
) -> _core.DevicePagedProblem:
    """Check the arrays of a step; numbers are page_size, slot_page_size and max_context."""
    q, kv_cache, weights, context_lens, block_table = arrays
    page_size, slot_page_size, max_context = numbers
    head_dim = int(q.shape[-1]) if len(q.shape) else 0  # type: ignore[attr-defined]
    witnesses = step.get("witnesses")
    return _core.DevicePagedProblem(
        describe("q", q, "code", library),
        _cache(library, kv_cache, page_size, head_dim),
        describe("weights", weights, "float32", library),
        describe("context_lens", context_lens, "int32", library),
        describe("block_table", block_table, "int32", library),
        describe("index_offset", step.get("index_offset"), "int32", library),
        describe("slot_table", step.get("slot_table"), "int32", library),
        None if witnesses is None else describe("witnesses", witnesses.states, "code", library),
        describe("witness_index", step.get("witness_index"), "int32", library),
        topk,
        slot_page_size,
        max_context,
    )


def _cache(
    library: Library, kv_cache: object, page_size: int, head_dim: int, written: bool = False
) -> _core.DeviceCache:
    pages = describe("kv_cache", kv_cache, "code", library)
    return _core.DeviceCache(pages, page_size, head_dim, written)


def topk(
    options: _core.Options,
    workspaces: Workspaces,
    arrays: tuple[object, object, object, object, object],
    topk: int,
    step: StepOptions,
    numbers: tuple[int, int, int],
    out: tuple[object, object],
) -> TopK[Any]:
    """Enqueue one step; the arguments are those of `dosa.paged_topk`, checked where not arrays."""
    library = library_of(arrays[0])
    problem = _problem(library, arrays, topk, step, numbers)
    needed = _core.device_paged_workspace_bytes(problem, options)
    selected = Selected(library, (problem.num_rows, topk), out, step.get("scores", False))
    _core.device_paged_topk(
        problem,
        options,
        *selected.described(),
        describe("workspace", workspaces.take(library, needed), "code", library),
        library.stream,
    )
    return selected.result()


def scores(
    arrays: tuple[object, object, object, object, object], page_size: int, out: object
) -> None:
    """Enqueue the scores of all tokens that the rows see; `out` is (rows, max_context) float32."""
    library = library_of(arrays[0])
    width = int(out.shape[1])  # type: ignore[attr-defined]
    problem = _problem(library, arrays, 1, {}, (page_size, 1, width))
    _core.device_paged_scores(problem, describe("out", out, "float32", library), library.stream)


def gather(
    kv_cache: object,
    block_table: object,
    cu_seq_lens: object,
    num_keys: int,
    head_dim: int,
    page_size: int,
) -> tuple[Any, Any]:
    """Enqueue the gathering of keys; uint8 codes and scales."""
    library = library_of(kv_cache)
    cache = _cache(library, kv_cache, page_size, head_dim)
    k, k_scale = library.empty((num_keys, head_dim), "uint8"), library.empty((num_keys,), "float32")
    _core.device_paged_gather(
        cache,
        describe("block_table", block_table, "int32", library),
        describe("cu_seq_lens", cu_seq_lens, "int32", library),
        describe("k", k, "code", library),
        describe("k_scale", k_scale, "float32", library),
        num_keys,
        library.stream,
    )
    return library.finish(k), library.finish(k_scale)


def insert(
    kv_cache: object,
    k: object,
    slot_mapping: object,
    scale_format: int,
    head_dim: int,
    page_size: int,
) -> None:
    """Enqueue the quantisation of new keys into their slots."""
    library = library_of(kv_cache)
    _core.device_paged_insert(
        _cache(library, kv_cache, page_size, head_dim, written=True),
        describe("k", k, "bfloat16", library),
        describe("slot_mapping", slot_mapping, "int64", library),
        scale_format,
        library.stream,
    )
