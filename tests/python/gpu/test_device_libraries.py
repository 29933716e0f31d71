# SPDX-License-Identifier: Apache-2.0
"""CuPy, JAX, Numba and mixtures of them: DLPack and __cuda_array_interface__."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import dosa
import oracle
from device_inputs import NEEDED, to_device, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

Q, H, D, N, K = 19, 32, 128, 1500, 40


@pytest.fixture(scope="module")
def inputs() -> oracle.Inputs:
    return oracle.integers(5, Q, H, D, N)


def assert_right(found: dosa.TopK[Any], inputs: oracle.Inputs, to_host: Any) -> None:
    ids, values = oracle.topk(inputs, K)
    np.testing.assert_array_equal(to_host(found.indices), ids)
    np.testing.assert_array_equal(to_host(found.scores), values)


def test_cupy(inputs: oracle.Inputs) -> None:
    cupy = pytest.importorskip("cupy")
    given = [cupy.asarray(array) for array in inputs]
    found = dosa.topk(*given, K, scores=True)
    assert isinstance(found.indices, cupy.ndarray)
    assert_right(found, inputs, cupy.asnumpy)
    np.testing.assert_array_equal(cupy.asnumpy(dosa.scores(*given)), dosa.scores(*inputs))
    indexer = dosa.Indexer()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        found = indexer.topk(*given, K, scores=True)
        stream.synchronize()
    assert_right(found, inputs, cupy.asnumpy)
    indexer.topk(*given, K)
    assert len(indexer._on_devices._kept) == 2, "one workspace for each stream"


def test_cupy_capture(inputs: oracle.Inputs) -> None:
    cupy = pytest.importorskip("cupy")
    given = [cupy.asarray(array) for array in inputs]
    ids = cupy.empty((Q, K), cupy.int32)
    stream = cupy.cuda.Stream(non_blocking=True)
    indexer = dosa.Indexer()
    with stream:
        indexer.topk(*given, K, out=ids)
        ids.fill(-7)
        stream.synchronize()
        stream.begin_capture()
        indexer.topk(*given, K, out=ids)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(ids), oracle.topk(inputs, K)[0])


@pytest.mark.parametrize("float8", [False, True])
def test_jax(inputs: oracle.Inputs, float8: bool) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    given = [jax.numpy.asarray(array) for array in inputs]
    if float8:
        given[:2] = [jax.lax.bitcast_convert_type(a, jax.numpy.float8_e4m3fn) for a in given[:2]]
    found = dosa.topk(*given, K, scores=True)
    assert isinstance(found.indices, jax.Array)
    assert_right(found, inputs, np.asarray)
    np.testing.assert_array_equal(np.asarray(dosa.scores(*given)), dosa.scores(*inputs))


def test_numba(inputs: oracle.Inputs) -> None:
    cuda = pytest.importorskip("numba.cuda")
    given = [cuda.to_device(array) for array in inputs]
    found = dosa.topk(*given, K, scores=True)
    assert_right(found, inputs, lambda array: cuda.as_cuda_array(array).copy_to_host())
    assert_right(found, inputs, lambda array: torch.from_dlpack(array).cpu().numpy())


def test_libraries_may_be_mixed(inputs: oracle.Inputs) -> None:
    cupy = pytest.importorskip("cupy")
    tensors, arrays = to_device(inputs), [cupy.asarray(array) for array in inputs]
    found = dosa.topk(tensors[0], *arrays[1:], K, scores=True)
    assert isinstance(found.indices, torch.Tensor)
    assert_right(found, inputs, lambda tensor: tensor.cpu().numpy())
    found = dosa.topk(arrays[0], *tensors[1:], K, scores=True)
    assert_right(found, inputs, cupy.asnumpy)


def test_results_live_as_long_as_their_views(inputs: oracle.Inputs) -> None:
    cuda = pytest.importorskip("numba.cuda")
    given = [cuda.to_device(array) for array in inputs]
    view = torch.from_dlpack(dosa.topk(*given, K).indices)
    for _ in range(20):
        dosa.topk(*given, K)
    np.testing.assert_array_equal(view.cpu().numpy(), oracle.topk(inputs, K)[0])
