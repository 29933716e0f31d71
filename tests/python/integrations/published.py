# SPDX-License-Identifier: Apache-2.0
"""Sources of published packages, for tests of what integrations rely on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

WANTED = pytest.mark.skipif(
    os.environ.get("DOSA_CONTRACTS") != "1",
    reason="DOSA_CONTRACTS is not 1: downloads packages, up to 350 MB each",
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dosa-contracts"


@cache
def wheel(package: str, version: str) -> Path:
    """The wheel of a release, or of the newest; skips the test where it cannot be had."""
    folder = CACHE / f"{package}-{version}"
    if version == "newest" or not list(folder.glob("*.whl")):
        name = package if version == "newest" else f"{package}=={version}"
        for old in folder.glob("*.whl"):
            old.unlink()
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        done = subprocess.run([*command, name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no {name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return next(folder.glob("*.whl"))


def version_of(package: str, version: str) -> str:
    """The version that the file's name states."""
    return wheel(package, version).name.split("-")[1]


@cache
def source(package: str, version: str, path: str) -> str:
    """The text of a file of a release."""
    with zipfile.ZipFile(wheel(package, version)) as archive:
        return archive.read(path).decode()


def definition(text: str, path: str) -> Any:
    """The function or class with a dotted name, as a syntax tree."""
    body: list[Any] = ast.parse(text).body
    node = None
    for name in path.split("."):
        found = [n for n in body if getattr(n, "name", None) == name]
        assert found, f"there is no {path}"
        node = found[-1]
        body = node.body
    return node


def parameters(text: str, path: str) -> list[str]:
    """The names of a function's parameters, in order."""
    arguments = definition(text, path).args
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def calls(text: str, path: str, name: str) -> list[ast.Call]:
    """The calls of `name` in a function, as written."""
    nodes = ast.walk(definition(text, path))
    return [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == name]


def run(text: str, names: list[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Define some functions and classes of a file, without decorators, in a namespace."""
    nodes = []
    for name in names:
        node = definition(text, name)
        node.decorator_list = []
        nodes.append(node)
    future = ast.parse("from __future__ import annotations").body
    module = ast.fix_missing_locations(ast.Module([*future, *nodes], []))
    exec(compile(module, names[0], "exec"), namespace)
    return namespace
