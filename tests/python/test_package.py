# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed: names, types, documentation, the command."""

from __future__ import annotations

import ast
import doctest
import importlib.metadata
import importlib.resources
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dosa
import dosa._functions
import dosa._indexer
import dosa._reports
from dosa import _core

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_version(root: Path) -> None:
    header = (root / "include/dosa/dosa.h").read_text()
    parts = [
        header.split(f"#define DOSA_VERSION_{part} ")[1].split()[0]
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert dosa.__version__ == ".".join(parts)
    assert importlib.metadata.version("dosa") == dosa.__version__


def test_typed() -> None:
    files = importlib.resources.files("dosa")
    assert files.joinpath("py.typed").is_file()
    assert files.joinpath("_core.pyi").is_file()


def parameters(function: Any) -> list[str]:
    """Names of the parameters as the extension states them."""
    tree = ast.parse(re.sub(r"\\\d+", "None", function.__nb_signature__[0][0]) + ": ...")
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    return [argument.arg for argument in definition.args.args]


def test_the_stub_states_what_the_extension_has() -> None:
    stub = ast.parse(importlib.resources.files("dosa").joinpath("_core.pyi").read_text())
    stated: dict[str, Any] = {}
    for node in stub.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            stated[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stated[node.target.id] = node
    if not _core.HAS_DEVICE:
        stated = {name: n for name, n in stated.items() if not name.lower().startswith("device")}
    assert set(stated) == {name for name in dir(_core) if not name.startswith("_")}
    for name, node in stated.items():
        found = getattr(_core, name)
        if isinstance(node, ast.FunctionDef):
            assert [argument.arg for argument in node.args.args] == parameters(found), name
        elif isinstance(node, ast.ClassDef):
            members = {i.name for i in node.body if isinstance(i, ast.FunctionDef)}
            members |= {ast.unparse(i.target) for i in node.body if isinstance(i, ast.AnnAssign)}
            own = {member for member in vars(found) if not member.startswith("_")}
            assert members - {"__init__"} == own, name


def test_row_fields_are_those_of_the_library() -> None:
    assert np.dtype(list(dosa.ROW_FIELDS)).itemsize == _core.ROW_STATS_BYTES


def test_all_names_exist_and_are_documented() -> None:
    for name in dosa.__all__:
        value = getattr(dosa, name)
        if callable(value):
            assert inspect.getdoc(value), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dosa.nothing


def test_every_option_is_documented() -> None:
    text = inspect.getdoc(dosa.topk) or ""
    for name in dosa.Options.__annotations__:
        assert name in text


@pytest.mark.parametrize("module", [dosa._functions, dosa._indexer])
def test_examples_in_the_documentation(module: object) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_command_passes_through(trace_path: Path, tmp_path: Path) -> None:
    version = run("-m", "dosa", "--version")
    assert version.stdout == f"dosa {dosa.__version__}\n"
    output = tmp_path / "out.safetensors"
    done = run("-m", "dosa", "run", trace_path, "-k", "100", "--out", output, "--scores", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 64
    written = dosa.load_tensors(output)
    here = dosa.topk(*dosa.load(trace_path), topk=100, scores=True)
    np.testing.assert_array_equal(written["indices"], here.indices)
    np.testing.assert_array_equal(written["scores"], here.scores)
    bad = run("-m", "dosa", "run", tmp_path / "none")
    assert bad.returncode == 2
    assert bad.stderr.startswith("dosa: ")
    assert bad.stderr.count("\n") == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples(path: Path, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
