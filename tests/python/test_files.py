# SPDX-License-Identifier: Apache-2.0
"""Files, against the reference implementation of the format."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import dosa
import oracle

# Names in the format and in NumPy; the reference reads float8 as bytes.
DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "float32", "float64"]


def reference(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Dtype, shape and bytes of each tensor, and the metadata, by the reference reader."""
    tensors = {}
    for name, entry in safetensors.deserialize(path.read_bytes()):
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"]))
    with safetensors.safe_open(path, "np") as file:
        return tensors, dict(file.metadata() or {})


def test_load_is_what_the_reference_reads(trace_path: Path) -> None:
    tensors, metadata = reference(trace_path)
    trace = dosa.load(trace_path)
    everything = dosa.load_tensors(str(trace_path))
    assert set(everything) == set(tensors)
    assert everything.metadata == metadata
    for name, (dtype, shape, data) in tensors.items():
        assert everything.dtypes[name] == dtype
        for array in (everything[name], getattr(trace, name)):
            assert array.shape == shape
            assert array.tobytes() == data
    assert trace.q.dtype == trace.k.dtype == np.uint8
    assert trace.k_scale.dtype == trace.weights.dtype == np.float32
    assert trace.k_start.dtype == trace.k_end.dtype == np.int32


def test_loaded_arrays_are_read_only_views_that_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    dosa.save(path, {"x": np.arange(1000, dtype=np.int32)})
    array = dosa.load_tensors(path)["x"]
    path.unlink()
    assert not array.flags.writeable
    assert not array.flags.owndata
    assert array.sum() == 499500


@given(
    st.dictionaries(
        st.text("abcé/.\n", min_size=1, max_size=4),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
        max_size=5,
    ),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100 * oracle.SCALE, deadline=None)
def test_what_is_saved_is_read_by_both(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: dict[str, tuple[str, list[int]]],
    metadata: dict[str, str],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, (dtype, shape) in shapes.items():
        data = rng.integers(0, 2 if dtype == "bool" else 100, shape)
        tensors[name] = np.asarray(data, dtype)
    path = tmp_path_factory.mktemp("files") / "a.safetensors"
    dosa.save(path, tensors, metadata)
    theirs = safetensors.numpy.load_file(path)
    ours = dosa.load_tensors(path)
    assert set(theirs) == set(ours) == set(tensors)
    for name, array in tensors.items():
        for found in (theirs[name], ours[name]):
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)
    assert ours.metadata == reference(path)[1] == metadata
    safetensors.numpy.save_file(tensors, path, metadata or None)  # {} makes it write invalid JSON
    again = dosa.load_tensors(path)
    for name, array in tensors.items():
        np.testing.assert_array_equal(again[name], array)


def test_codes_keep_their_type(tmp_path: Path) -> None:
    path = tmp_path / "codes.safetensors"
    codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
    tensors = {
        "e4m3": codes.view(ml_dtypes.float8_e4m3fn),
        "e5m2": codes.view(ml_dtypes.float8_e5m2),
        "bf16": codes.astype(ml_dtypes.bfloat16),
    }
    dosa.save(path, tensors, {"a": "b"})
    loaded = dosa.load_tensors(path)
    types = {"e4m3": "F8_E4M3", "e5m2": "F8_E5M2", "bf16": "BF16"}
    assert loaded.dtypes == types
    assert loaded["e4m3"].tolist() == codes.tolist()
    dosa.save(tmp_path / "again.safetensors", loaded)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_trace_and_a_result_are_saved_as_the_command_names_them(tmp_path: Path) -> None:
    inputs = oracle.integers(1, queries=3, heads=2, dim=16, keys=20)
    path = tmp_path / "trace.safetensors"
    dosa.save(path, dosa.Trace(*inputs), {"source": "integers"})
    tensors, metadata = reference(path)
    assert {name: entry[0] for name, entry in tensors.items()} == {
        "q": "F8_E4M3",
        "k": "F8_E4M3",
        "k_scale": "F32",
        "weights": "F32",
        "k_start": "I32",
        "k_end": "I32",
    }
    assert metadata == {"source": "integers"}
    for found, array in zip(dosa.load(path), inputs, strict=True):
        np.testing.assert_array_equal(found, array)
    result = dosa.topk(*dosa.load(path), topk=4, scores=True)
    dosa.save(tmp_path / "result.safetensors", result)
    loaded = dosa.load_tensors(tmp_path / "result.safetensors")
    assert loaded.dtypes == {"indices": "I32", "scores": "F32"}
    np.testing.assert_array_equal(loaded["indices"], result.indices)


def test_a_trace_at_odd_offsets_is_usable(tmp_path: Path) -> None:
    inputs = oracle.integers(2, queries=2, heads=2, dim=16, keys=10)
    names = ("q", "k", "k_scale", "weights", "k_start", "k_end")
    types = ("F8_E4M3", "F8_E4M3", "F32", "F32", "I32", "I32")
    header: dict[str, Any] = {"pad": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    data = b"\0"
    for name, dtype, array in zip(names, types, inputs, strict=True):
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path = tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    expected = dosa.topk(*inputs, topk=3).indices
    np.testing.assert_array_equal(dosa.topk(*dosa.load(path), topk=3).indices, expected)
    np.testing.assert_array_equal(dosa.load_tensors(path)["weights"], inputs.weights)


@pytest.mark.parametrize("read", [dosa.load, dosa.load_tensors])
def test_no_file(read: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"abc", struct.pack("<Q", 2**62), struct.pack("<Q", 2) + b"{]"]
)
@pytest.mark.parametrize("read", [dosa.load, dosa.load_tensors])
def test_no_safetensors_file(read: Any, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(dosa.FileError, match=r"bad\.safetensors.*: found .*, expected "):
        read(path)


def test_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    dosa.save(path, {"q": np.zeros((2, 3, 16), np.float32)})
    with pytest.raises(dosa.FileError, match=r"'q': found F32 \[2, 3, 16\], expected F8_E4M3"):
        dosa.load(path)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    for value, found in (
        (np.array(["x"]), "<U1"),
        (object(), "object"),
        (np.zeros(2, ">i4"), ">i4"),
    ):
        with pytest.raises(dosa.ArgumentTypeError, match=rf"^x: found dtype {found}"):
            dosa.save(tmp_path / "a", {"x": value})  # type: ignore[dict-item]
    with pytest.raises(dosa.FileError, match=r"no/such/folder.*expected"):
        dosa.save(tmp_path / "no/such/folder", {"x": np.zeros(2)})
    assert list(tmp_path.iterdir()) == []
