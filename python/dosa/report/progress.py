# SPDX-License-Identifier: Apache-2.0
"""How far a measurement is and how long it will take; says nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Progress:
    """A bar on a terminal: Rich's where it is installed, else one line.

    Parameters
    ----------
    total : float
        Sum of the estimates of all that is to be done.
    """

    def __init__(self, total: float) -> None:
        self._total = total
        self._done = 0.0
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._terminal:
            try:
                self._start_bar()
            except ImportError:
                self._bar = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._terminal:
            print(file=sys.stderr)

    def begin(self, name: str) -> None:
        """Say what is being measured."""
        if self._bar is not None:
            self._bar.update(self._task, description=name)
        elif self._terminal:
            share = self._done / self._total if self._total else 1.0
            line = f"{100 * share:3.0f}%, {self._left()} left: {name}"
            print(f"\r{line[:79]:<79}", end="", file=sys.stderr, flush=True)

    def done(self, estimate: float) -> None:
        """Count a cell as done."""
        self._done += estimate
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, left=self._left())

    def _left(self) -> str:
        """Return the time left, by how wrong the estimates of what is done were."""
        if not self._done:
            return "some time"
        rate = (time.monotonic() - self._started) / self._done
        seconds = rate * (self._total - self._done)
        return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]} left"),
            TextColumn("{task.description}"),
        )
        self._bar = RichProgress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task("", total=self._total, left="some time")
        self._bar.start()
