# SPDX-License-Identifier: Apache-2.0
"""What ``dosa study --json`` wrote, grouped for figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Group(NamedTuple):
    """Inputs that are averaged together."""

    name: str
    inputs: list[dict[str, Any]]

    @property
    def label(self) -> str:
        """Return the group with the sizes that its numbers depend on."""
        shape = self.inputs[0]["shape"]
        return f"{self.name}, {shape['keys']:,} keys, K = {shape['topk']:,}"

    @property
    def source(self) -> str:
        """Return what the inputs are, in one line."""
        sources = sorted({one["source"] for one in self.inputs})
        return sources[0] if len(sources) == 1 else f"{sources[0]}, and {len(sources) - 1} more"


def read(paths: Sequence[Path]) -> list[Group]:
    """Read studies and group their inputs.

    Parameters
    ----------
    paths : sequence of Path
        What ``dosa study --json`` wrote.

    Returns
    -------
    list of Group
        One for each kind of input and shape, in the order in which they appear.

    Raises
    ------
    ValueError
        Where a file is not a study; the message names it.
    OSError
        Where a file cannot be read.
    """
    groups: dict[str, Group] = {}
    for path in paths:
        try:
            inputs = json.loads(path.read_text(encoding="utf-8"))["inputs"]
            for one in inputs:
                group = Group(one["group"], [one])
                if group.label in groups:
                    groups[group.label].inputs.append(one)
                else:
                    groups[group.label] = group
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            expected = "what dosa study --json writes"
            raise ValueError(f"{path}: found {error!r}, expected {expected}") from error
    if not groups:
        raise ValueError("found no inputs in the studies, expected at least one")
    return list(groups.values())


def values(group: Group, facet: str, name: str, metric: str) -> list[float]:
    """Return a metric of one case, in percent, of every input that has it."""
    return [
        100 * case[metric]
        for one in group.inputs
        for case in one["cases"]
        if case["facet"] == facet and case["name"] == name and case[metric] is not None
    ]


def mean(numbers: Sequence[float]) -> float:
    """Return the mean, NaN of nothing."""
    return sum(numbers) / len(numbers) if numbers else math.nan


def layers_of(group: Group) -> list[int]:
    """Return the layers of a group's inputs, ascending."""
    return sorted({one["layer"] for one in group.inputs if one["layer"] is not None})


def of_layer(group: Group, layer: int, domain: str | None = None) -> Group:
    """Return the part of a group that is one layer, and one domain where it is named."""
    return Group(
        group.name,
        [one for one in group.inputs if one["layer"] == layer and domain in (None, one["domain"])],
    )


def course(group: Group, name: str, what: str) -> list[float]:
    """Return the mean course of a scan over a group's inputs; empty where there is none."""
    courses = [
        one_course[what]
        for one in group.inputs
        for one_course in one["trajectories"]
        if one_course["name"] == name
    ]
    return [mean(step) for step in zip(*courses, strict=True)]
