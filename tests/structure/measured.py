# SPDX-License-Identifier: Apache-2.0
"""measured.py ROOT: every measured time of README.md is in the JSON that its line names.

Looked at are the lines of the section "Measured". A number with a unit (ms, us, s) stands on a line
that links to files under bench/results, and one of these has it at the precision in which it is
written: as a value, or as the median of a list of samples. Fields say their unit with their name's
end (_s, _ms, _us) or are called seconds or us.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "seconds": 1.0}
NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) (ms|us|s)\b")
LINK = re.compile(r"\]\((bench/results/[^)#]+\.jsonl?)\)")


def values(content: object, unit: float | None) -> Iterator[float]:
    """Yield the times of a JSON value in seconds."""
    if isinstance(content, dict):
        for name, one in content.items():
            yield from values(one, SECONDS.get(name.rsplit("_", 1)[-1], unit))
    elif isinstance(content, list):
        if unit is not None and content and all(type(one) in (int, float) for one in content):
            yield unit * statistics.median(content)
        for one in content:
            yield from values(one, unit)
    elif unit is not None and type(content) in (int, float):
        yield unit * content


def records(path: Path) -> list[object]:
    """Return the JSON values of a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    return [json.loads(line) for line in lines]


def problems(root: Path) -> tuple[int, list[str]]:
    """Return how many numbers were looked at, and what is wrong."""
    text = (root / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Measured\n")[2].partition("\n## ")[0]
    found: list[str] = []
    count = 0
    for line in section.splitlines():
        files = [root / target for target in LINK.findall(line)]
        known = [value for file in files for one in records(file) for value in values(one, None)]
        for written, unit in NUMBER.findall(line):
            count += 1
            half = 0.5 * 10.0 ** -len(written.partition(".")[2]) * SECONDS[unit] * (1 + 1e-9)
            if not any(abs(value - float(written) * SECONDS[unit]) <= half for value in known):
                found.append(f"README.md: {written} {unit} is in none of the files of its line")
    if count == 0:
        found.append("README.md states no measured time")
    return count, found


def main() -> int:
    """Print what is wrong; return 1 if something is."""
    count, found = problems(Path(sys.argv[1]))
    print("\n".join([*found, f"{count} numbers, {len(found)} without their source"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
