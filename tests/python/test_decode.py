# SPDX-License-Identifier: Apache-2.0
"""Decode steps from Python: the oracle's answers over pages, witnesses, caches, refusals."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dosa
import dosa._decode
import oracle

Array = NDArray[Any]
DIM = 16


def paged(
    requests: list[oracle.Inputs], page_size: int, *, extra: int = 0, seed: int = 0
) -> tuple[Array, Array]:
    """The keys of requests in shuffled pages, NaN wherever none lies: cache and block table."""
    rng = np.random.default_rng(seed)
    used = [-(-len(request.k) // page_size) for request in requests]
    pages = rng.permutation(sum(used) + 2).astype(np.int32)
    cache = np.full((len(pages), page_size * (DIM + 4) + extra), 0xFF, np.uint8)
    table = np.full((len(requests), max(used) + 1), -1, np.int32)
    at = 0
    for b, request in enumerate(requests):
        table[b, : used[b]] = pages[at : at + used[b]]
        at += used[b]
        for i, key in enumerate(request.k):
            page, place = cache[table[b, i // page_size]], i % page_size
            page[place * DIM : (place + 1) * DIM] = key
            scales = page[page_size * DIM : page_size * (DIM + 4)]
            scales[4 * place : 4 * place + 4] = request.k_scale[i : i + 1].view(np.uint8)
    return cache, table


def step(
    requests: list[oracle.Inputs], page_size: int = 64, **paging: int
) -> tuple[Array, Array, Array, Array, Array]:
    """The arrays of a decode step, in the order of the call."""
    cache, table = paged(requests, page_size, **paging)
    return (
        np.stack([request.q for request in requests]),
        cache,
        np.concatenate([request.weights for request in requests]),
        np.stack([request.k_end for request in requests]),
        table,
    )


def draw(seed: int, sizes: tuple[int, ...], next_n: int = 2) -> list[oracle.Inputs]:
    rng = np.random.default_rng(seed)
    requests = []
    for n, size in enumerate(sizes):
        request = oracle.integers(100 * seed + n, next_n, 4, DIM, size, plain=True)
        request.k_end = rng.integers(-2, size + 1, next_n).astype(np.int32)
        request.k_end[-1] = size
        requests.append(request)
    return requests


def expected(requests: list[oracle.Inputs], kept: int, **options: Any) -> tuple[Array, Array]:
    rows = [oracle.topk(request, kept, **options) for request in requests]
    return np.concatenate([ids for ids, _ in rows]), np.concatenate([s for _, s in rows])


@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 128])
@pytest.mark.parametrize("order", ["id", "score"])
def test_the_oracles_answer(page_size: int, order: Any) -> None:
    requests = draw(page_size, (130, 1, 300, 64))
    arrays = step(requests, page_size, extra=8)
    options = {"order": order, "forced_first": 2, "forced_last": 3}
    ids, values = expected(requests, 20, **options)
    result = dosa.paged_topk(*arrays, 20, page_size=page_size, scores=True, threads=2, **options)
    np.testing.assert_array_equal(result.indices, ids)
    np.testing.assert_array_equal(result.scores, values)
    assert result.stats.rows == 8
    assert result.rows["visible"].tolist() == np.clip(arrays[3], 0, None).ravel().tolist()


def test_shapes_of_caches_and_lengths() -> None:
    requests = draw(3, (200, 90), next_n=3)
    for request in requests:
        request.k_end = np.array([len(request.k) - 2, len(request.k) - 1, len(request.k)], np.int32)
    q, cache, weights, lengths, table = step(requests, 32)
    ids, _ = expected(requests, 9)
    for shape in ((-1, 32, DIM + 4), (-1, 32, 1, DIM + 4)):
        for each in (lengths, np.ascontiguousarray(lengths[:, -1])):
            result = dosa.paged_topk(q, cache.reshape(shape), weights, each, table, 9)
            np.testing.assert_array_equal(result.indices, ids)
    spaced = np.zeros((len(cache), 2, cache.shape[1]), np.uint8)
    spaced[:, 0] = cache
    result = dosa.paged_topk(q, spaced[:, 0], weights, lengths, table, 9, page_size=32)
    np.testing.assert_array_equal(result.indices, ids)


def test_index_forms() -> None:
    requests = draw(4, (150, 40))
    arrays = step(requests, 16)
    ids, _ = expected(requests, 12)
    table = arrays[4]
    request = np.repeat(np.arange(2), 2)[:, None]
    slots = np.where(ids < 0, -1, table[request, np.maximum(ids, 0) // 16] * 16 + ids % 16)
    call = dosa.Indexer(index_form="slot", threads=1).paged_topk(*arrays, 12, page_size=16)
    np.testing.assert_array_equal(call.indices, slots)
    offset = np.array([5, -7, 1000, 0], np.int32)
    moved = np.where(ids < 0, -1, ids + offset[:, None])
    result = dosa.paged_topk(
        *arrays, 12, page_size=16, index_form="offset", index_offset=offset, max_context=150
    )
    np.testing.assert_array_equal(result.indices, moved)
    other = np.arange(400, dtype=np.int32)[::-1].copy().reshape(2, 200)
    result = dosa.paged_topk(*arrays, 12, page_size=16, index_form="slot", slot_table=other)
    named = np.where(ids < 0, -1, other[request, np.maximum(ids, 0)])
    np.testing.assert_array_equal(result.indices, named)


def test_witnesses_change_no_answer() -> None:
    requests = draw(5, (900, 700), next_n=1)
    arrays = step(requests)
    ids, _ = expected(requests, 30)
    witnesses = dosa.Witnesses(30, 3)
    indexer = dosa.Indexer(threads=1)
    rng = np.random.default_rng(1)
    for index in (None, np.array([2, 0], np.int32), np.array([1, 1], np.int32)):
        for repeat in range(3):
            result = indexer.paged_topk(*arrays, 30, witnesses=witnesses, witness_index=index)
            np.testing.assert_array_equal(result.indices, ids)
            if repeat == 1:
                witnesses.states[:] = rng.integers(0, 256, witnesses.states.shape)
    witnesses.clear()
    assert not witnesses.states.any()
    cold = indexer.paged_topk(*arrays, 30, witnesses=witnesses)
    warm = indexer.paged_topk(*arrays, 30, witnesses=witnesses)
    assert np.all(np.isneginf(cold.rows["first_threshold"]))
    np.testing.assert_array_equal(warm.rows["first_threshold"], warm.rows["kth_score"])
    witnesses.clear(0)
    witnesses.set(0, cold.indices[0])
    witnesses.set(1, [int(i) for i in cold.indices[1]])
    again = indexer.paged_topk(*arrays, 30, witnesses=witnesses)
    np.testing.assert_array_equal(again.rows["first_threshold"], again.rows["kth_score"])


def bf16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@pytest.mark.parametrize("scale_format", ["fp32", "ue8m0"])
def test_insert_then_gather(scale_format: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(7)
    keys = bf16(rng.normal(size=(100, DIM)) * np.exp2(rng.integers(-20, 20, (100, 1))))
    cache = np.zeros((4, 32, DIM + 4), np.uint8)
    slots = rng.permutation(128)[:100].astype(np.int64)
    slots[5] = -1
    dosa.paged_insert(cache, keys.view(ml_dtypes.bfloat16), slots, scale_format=scale_format)
    values = keys.view(ml_dtypes.bfloat16).astype(np.float32)
    scale = np.maximum(np.abs(values).max(1), np.float32(1e-4)) / np.float32(448)
    if scale_format == "ue8m0":
        scale = np.exp2(np.ceil(np.log2(scale.astype(np.float64)))).astype(np.float32)
    codes = (values / scale[:, None]).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    # A table of pages of one token each would be another cache: gather the pages in order.
    table = np.arange(4, dtype=np.int32)[None, :]
    k, k_scale = dosa.paged_gather(cache, table, np.array([0, 128], np.int32), head_dim=DIM)
    kept = slots >= 0
    np.testing.assert_array_equal(k[slots[kept]], codes[kept])
    np.testing.assert_array_equal(k_scale[slots[kept]], scale[kept])
    untouched = np.setdiff1d(np.arange(128), slots)
    assert not k[untouched].any()
    assert not k_scale[untouched].any()


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    requests = draw(8, (300, 20))
    q, cache, weights, lengths, table = step(requests)
    ids, _ = expected(requests, 25)
    tensors = [torch.from_numpy(array) for array in (q, cache, weights, lengths, table)]
    tensors[0] = tensors[0].view(torch.float8_e4m3fn)
    result = dosa.paged_topk(*tensors, 25, scores=True)
    assert isinstance(result.indices, torch.Tensor)
    np.testing.assert_array_equal(result.indices.numpy(), ids)
    keys = torch.randn(3, DIM, dtype=torch.bfloat16)
    dosa.paged_insert(tensors[1], keys, torch.tensor([0, -1, 70]))
    both = torch.tensor([[0, 1]], dtype=torch.int32)
    k, k_scale = dosa.paged_gather(
        tensors[1], both, torch.tensor([0, 128], dtype=torch.int32), head_dim=DIM
    )
    assert k.dtype == torch.float8_e4m3fn
    for token, slot in ((0, 0), (2, 70)):
        scale = keys[token].float().abs().max().clamp(min=1e-4) / 448
        assert torch.equal(k_scale[slot], scale)
        code = (keys[token].float() / scale).to(torch.float8_e4m3fn)
        assert torch.equal(k[slot].view(torch.uint8), code.view(torch.uint8))


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("q", {"q": np.zeros((2, 2, 4), np.uint8)}, "shape (2, 2, 4)"),
    ("q", {"q": np.zeros((2, 2, 4, DIM), np.float32)}, "dtype float32"),
    ("kv_cache", {"kv_cache": np.zeros((9, 100), np.uint8)}, "pages of 100"),
    ("kv_cache", {"kv_cache": np.zeros((9, 64, DIM), np.uint8)}, "shape (9, 64, 16)"),
    ("kv_cache", {"kv_cache": np.zeros((9, 64, 2, DIM + 4), np.uint8)}, "shape (9, 64, 2, 20)"),
    ("weights", {"weights": np.zeros((2, 2, 4), np.float32)}, "shape (2, 2, 4)"),
    ("context_lens", {"context_lens": np.zeros((2, 2), np.int64)}, "dtype int64"),
    ("context_lens", {"context_lens": np.zeros(3, np.int32)}, "shape (3,)"),
    ("block_table", {"block_table": np.zeros((2, 5), np.int32)[:, ::2]}, "strides"),
    ("block_table", {"block_table": np.full((2, 5), 77, np.int32)}, "page 77 (request 0, block 0)"),
    ("block_table", {"block_table": np.zeros((2, 1), np.int32)}, "1 blocks"),
    ("topk", {"topk": 0}, "0"),
    ("page_size", {"page_size": 8}, "8"),
    ("witnesses", {"witnesses": np.zeros((2, 100), np.uint8)}, "ndarray"),
    ("witnesses", {"witnesses": dosa.Witnesses(5, 2)}, "those of K = 5"),
    ("options", {"colour": 1}, "'colour'"),
    ("options", {"heads": 1}, "'heads'"),
    ("mode", {"mode": "dosa"}, "4"),
]


@pytest.mark.parametrize(("name", "change", "found"), BAD)
def test_misuse(name: str, change: dict[str, Any], found: str) -> None:
    names = ("q", "kv_cache", "weights", "context_lens", "block_table")
    arguments: dict[str, Any] = dict(zip(names, step(draw(9, (200, 100))), strict=True))
    arguments["topk"] = 7
    dosa.paged_topk(**arguments)
    arguments.update(change)
    with pytest.raises(dosa.Error) as caught:
        dosa.paged_topk(**arguments)
    assert str(caught.value).startswith(name)
    assert f"found {found}" in str(caught.value).replace("element strides", "strides")


def test_misuse_of_caches() -> None:
    cache = np.zeros((2, 64, DIM + 4), np.uint8)
    keys = np.zeros((1, DIM), np.uint16)
    with pytest.raises(dosa.ArgumentError, match=r"slot_mapping: found 128 \(token 0\)"):
        dosa.paged_insert(cache, keys, np.array([128]))
    with pytest.raises(dosa.ArgumentTypeError, match="k: found dtype float32, expected bfloat16"):
        dosa.paged_insert(cache, keys.astype(np.float32), np.array([1]))
    with pytest.raises(dosa.ArgumentTypeError, match="slot_mapping: found dtype int32"):
        dosa.paged_insert(cache, keys, np.array([1], np.int32))
    with pytest.raises(dosa.ArgumentError, match="scale_format"):
        dosa.paged_insert(cache, keys, np.array([1]), scale_format="e5m2")
    cache.flags.writeable = False
    with pytest.raises(dosa.ArgumentTypeError, match=r"kv_cache: .*writable"):
        dosa.paged_insert(cache, keys, np.array([1]))
    table = np.zeros((1, 2), np.int32)
    with pytest.raises(dosa.ArgumentError, match="cu_seq_lens"):
        dosa.paged_gather(cache, table, np.array([1, 5], np.int32), head_dim=DIM)


def test_examples_in_the_documentation() -> None:
    assert doctest.testmod(dosa._decode).failed == 0
