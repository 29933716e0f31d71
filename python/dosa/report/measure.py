# SPDX-License-Identifier: Apache-2.0
"""Measures what is missing, cell by cell; what is there is kept."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dosa.__main__ import command as command_path
from dosa.report.machine import build_facts, machine_facts, state_facts
from dosa.report.plan import Cell
from dosa.report.progress import Progress
from dosa.report.raw import RawError, Store


class MeasureError(Exception):
    """Nothing can be measured; the text says why."""


def measure(
    store: Store,
    cells: list[Cell],
    *,
    commit: str | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
) -> int:
    """Run every cell that has no result yet.

    Parameters
    ----------
    store : Store
        Where the results are.
    cells : list of Cell
        The plan.
    commit : str, optional
        Which commit was built. Default: what git says where this is called, if it says anything.
    say : callable
        Takes one line on each cell that failed or whose file had to be measured again.

    Returns
    -------
    int
        How many cells failed.

    Raises
    ------
    MeasureError
        The command is missing, or another build measured what is there.
    """
    command = command_path()
    if not Path(command).is_file():
        raise MeasureError(f"found no command at {command}, expected the one of this package")
    build = build_facts(command, commit)
    missing = _missing(store, cells, build["sha256"], say)
    machine = machine_facts()
    failed = 0
    with Progress(sum(cell.estimate for cell in missing)) as progress:
        for cell in missing:
            progress.begin(cell.name)
            before = state_facts()
            started = datetime.now(UTC).isoformat(timespec="seconds")
            clock = time.monotonic()
            result, failure = _run(command, cell)
            seconds = time.monotonic() - clock
            progress.done(cell.estimate)
            if result is None:
                if "--backend: found" in failure:  # the same of all cells
                    raise MeasureError(failure)
                say(f"{cell.name}: {failure}")
                failed += 1
                continue
            facts = {
                "started": started,
                "seconds": round(seconds, 3),
                "machine": machine,
                "state": [before, state_facts()],
                "build": build,
            }
            store.write(cell, facts, result)
    return failed


def _missing(store: Store, cells: list[Cell], build: str, say: Callable[[str], None]) -> list[Cell]:
    missing = []
    others = 0
    for cell in cells:
        try:
            raw = store.read(cell)
        except RawError as error:
            say(f"{error}; measured again")
            raw = None
        if raw is None:
            missing.append(cell)
        elif raw.build != build:
            others += 1
    if others and missing:
        raise MeasureError(
            f"{store.folder}: found {others} cells that another build measured, expected this "
            "one's; choose another folder, or remove them"
        )
    return missing


def _run(command: str, cell: Cell) -> tuple[dict[str, Any] | None, str]:
    """Return what the command wrote, or None and why there is nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        done = subprocess.run(
            [command, *cell.command, "--json", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["nothing on stderr"]
            return None, f"dosa ended with {done.returncode}: {lines[-1]}"
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return None, f"dosa wrote no JSON ({error})"
    if not isinstance(result, dict):
        return None, "dosa wrote something else than an object"
    return result, ""
