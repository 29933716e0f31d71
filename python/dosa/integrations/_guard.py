# SPDX-License-Identifier: Apache-2.0
"""What all integrations share: the off switch, the warning, the range of releases."""

from __future__ import annotations

import os
import re
import warnings

DISABLE = "DOSA_DISABLE"


class IntegrationWarning(UserWarning):
    """An integration stepped aside: what it found is not what it was written for."""


def disabled(name: str) -> bool:
    """Return whether DOSA_DISABLE names this integration, or all."""
    names = {part.strip().lower() for part in os.environ.get(DISABLE, "").split(",")}
    return name in names or "all" in names


def release(version: str) -> tuple[int, ...]:
    """Return the numbers that a version starts with: "5.24.0.dev0" is (5, 24, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def version_problem(
    package: str, found: str, first: tuple[int, ...], beyond: tuple[int, ...]
) -> str | None:
    """Return None where `first` <= `found` < `beyond`, else the line "name: found, expected"."""
    if first <= release(found) < beyond:
        return None
    lowest, above = (".".join(map(str, numbers)) for numbers in (first, beyond))
    return f"{package}: found {found}, expected {lowest} or later, below {above}"


def step_aside(integration: str, problem: str, stacklevel: int = 3) -> None:
    """Warn that the original code stays in place, and why."""
    warnings.warn(
        f"dosa.integrations.{integration} steps aside, the original code stays: {problem}",
        IntegrationWarning,
        stacklevel=stacklevel,
    )
