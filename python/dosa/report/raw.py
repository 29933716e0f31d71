# SPDX-License-Identifier: Apache-2.0
"""The raw results: one JSON file for each cell, and the plan that they belong to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dosa.report.plan import Cell

FORMAT = 1
_SECOND = "second"
_FIELDS = {
    "cell": str,
    "section": str,
    "command": list,
    "started": str,
    "seconds": float,
    "machine": dict,
    "state": list,
    "build": dict,
    "result": dict,
}


@dataclass(frozen=True)
class Raw:
    """A measured cell."""

    cell: Cell
    facts: dict[str, Any]
    """When, on what and by which build; the fields of the file but for the result."""
    result: dict[str, Any]
    """What the command wrote."""

    @property
    def build(self) -> str:
        """Hash of the command that measured."""
        return str(self.facts["build"].get("sha256", ""))


class RawError(Exception):
    """A raw result that cannot be used; the text says which and why."""


class Store:
    """The folder of raw results.

    Parameters
    ----------
    folder : path
        Made where it does not exist, by the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return the file of a cell."""
        return self.folder / f"{name}.json"

    def read(self, cell: Cell) -> Raw | None:
        """Return a cell's result; None where there is none.

        Raises
        ------
        RawError
            The file is no such result, or another command's.
        """
        path = self.path(cell.name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RawError(f"{path.name}: not readable as JSON ({error})") from None
        if not isinstance(content, dict) or content.get("report") != FORMAT:
            raise RawError(f"{path.name}: not a raw result of format {FORMAT}")
        for name, kind in _FIELDS.items():
            if not isinstance(content.get(name), kind):
                raise RawError(f"{path.name}: found no {name}, expected {kind.__name__}")
        if content["command"] != list(cell.command):
            raise RawError(f"{path.name}: measured by another command than the plan's")
        _check_result(path.name, cell, content["result"])
        facts = {name: value for name, value in content.items() if name != "result"}
        return Raw(cell, facts, content["result"])

    def write(self, cell: Cell, facts: dict[str, Any], result: dict[str, Any]) -> None:
        """Keep a cell's result; the file appears complete or not at all."""
        content = {"report": FORMAT, "cell": cell.name, "section": cell.section}
        content |= {"command": list(cell.command), **facts, "result": result}
        self._commit(self.path(cell.name), content)

    def keep(self, kind: str, files: Iterable[Path]) -> None:
        """Copy results of another program beside the raw ones.

        Raises
        ------
        RawError
            A file is no JSON.
        """
        for file in files:
            _records(file)
            self._commit_text(self.folder / kind / file.name, file.read_text(encoding="utf-8"))

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of all files of a kind; each says its file, as `kind/name`."""
        found = []
        for path in sorted((self.folder / kind).glob("*.json*")):
            found += [{**one, "file": f"{kind}/{path.name}"} for one in _records(path)]
        return found

    def write_second(self, content: dict[str, Any]) -> None:
        """Keep what another run of the plan found."""
        self._commit(self.path(_SECOND), content)

    def read_second(self) -> dict[str, Any] | None:
        """Return what another run found; None where there was none."""
        path = self.path(_SECOND)
        return _records(path)[0] if path.is_file() else None

    def write_plan(self, scale: str, cells: list[Cell]) -> None:
        """Keep what is to be measured, so that a page can say what is missing."""
        listed = [
            {
                "name": cell.name,
                "section": cell.section,
                "command": list(cell.command),
                "estimate": cell.estimate,
            }
            for cell in cells
        ]
        self._commit(self.path("plan"), {"report": FORMAT, "scale": scale, "cells": listed})

    def read_plan(self) -> tuple[str, list[Cell]]:
        """Return the scale's name and the cells of the plan.

        Raises
        ------
        RawError
            There is no plan, or it is none.
        """
        path = self.path("plan")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["report"] != FORMAT:
                raise RawError(f"{path.name}: not a plan of format {FORMAT}")
            cells = [
                Cell(one["name"], one["section"], tuple(one["command"]), float(one["estimate"]))
                for one in content["cells"]
            ]
            return str(content["scale"]), cells
        except OSError:
            raise RawError(f"found no {path}, expected the plan of a measurement") from None
        except (ValueError, KeyError, TypeError) as error:
            raise RawError(f"{path.name}: not a plan ({error!r})") from None

    def _commit(self, path: Path, content: dict[str, Any]) -> None:
        self._commit_text(path, json.dumps(content, separators=(",", ":")) + "\n")

    @staticmethod
    def _commit_text(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.part")
        hidden.write_text(text, encoding="utf-8")
        os.replace(hidden, path)


def _records(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file: one, a list of them, or one a line."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            content = json.loads(text)
            found = content if isinstance(content, list) else [content]
    except (OSError, ValueError) as error:
        raise RawError(f"{path.name}: not readable as JSON ({error})") from None
    if not found or not all(isinstance(one, dict) for one in found):
        raise RawError(f"{path.name}: found no objects, expected one or more")
    return found


def _check_result(name: str, cell: Cell, result: dict[str, Any]) -> None:
    """Look at the fields that the page cannot do without."""
    try:
        if cell.command[0] == "study":
            if not all(one["cases"] and one["runs"][0]["samples_s"] for one in result["inputs"]):
                raise KeyError("cases")
        else:
            modes = [mode for one in result["cells"] for mode in one["modes"]]
            if not modes or not all(mode["wall_s"] and mode["mode"] for mode in modes):
                raise KeyError("wall_s")
    except (KeyError, TypeError, IndexError) as error:
        raise RawError(f"{name}: not what the command writes (no {error})") from None
