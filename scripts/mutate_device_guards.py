#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes each guard term of the device engine out and shows that the search notices.

    scripts/mutate_device_guards.py build DIR    # where nvcc is: one gpu_search for each term
    scripts/mutate_device_guards.py run DIR      # where the device is: prints the table

`build` copies the tracked files, edits one term at a time and links bench/gpu/search.cu with the
engine that lacks it; with all terms in place the program is DIR/whole. `run` searches with the
model that was made to show the term and prints the first violation.

Exit status 1: a term whose loss shows no violation, or violations with all terms in place; 2: an
entry that does not match the code any more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PLAN = "src/plan/plan_sm90.cu"
PREPARE = "src/plan/prepare_sm90.cu"
ORDER = "src/numeric/order_sm90.cuh"
ROWS, KEYS = "256", "131072"
RUN_SECONDS = 60


class Mutant(NamedTuple):
    """One term: its inequality, what it is, where it shows, and the code without it."""

    name: str
    number: str
    term: str
    model: str  # of bench/gpu/search_inputs.cuh
    file: str
    edits: tuple[tuple[str, str], ...]  # each old text occurs exactly once


M = Mutant
MUTANTS = [
    M(
        "allowance",
        "E3, E4",
        "E_P of the omitted positive heads",
        "normal",
        PLAN,
        (("  return allowance;", "  return 0.0f;"),),
    ),
    M(
        "projected",
        "S9",
        "rounding of the products of projected heads and their anchors",
        "parallel",
        PLAN,
        (
            ("envelope.add_vector(weight, shared.norm[head], shared.largest[head]);", ""),
            ("envelope.add_vector(share, shared.norm[anchor], shared.largest[anchor]);", ""),
        ),
    ),
    M(
        "aggregated",
        "S13",
        "rounding of the products of aggregated heads",
        "aggregated",
        PLAN,
        (("envelope.add_aggregated(shared, q);", ""),),
    ),
    M(
        "sums",
        "N2",
        "roundings of both fp32 sums",
        "cancelling",
        PLAN,
        (("constexpr float kRoundings = 0x1p-18f;", "constexpr float kRoundings = 0.0f;"),),
    ),
    M(
        "underflow",
        "N2",
        "underflow of products and sums",
        "underflow",
        PLAN,
        (("constexpr float kUnderflow = 0x1p-120f;", "constexpr float kUnderflow = 0.0f;"),),
    ),
    M(
        "scales",
        "E6",
        "keys whose scale is zero, negative, subnormal or not finite have no bound",
        "scales",
        PREPARE,
        (
            (
                "prunable_scale(scale) ? __fsqrt_ru(sum) : __int_as_float(0x7fffffff)",
                "prunable_scale(1.0f) ? __fsqrt_ru(sum) : __int_as_float(0x7fffffff)",
            ),
        ),
    ),
    M(
        "row-size",
        "N10",
        "rows on which a sum could overflow have no bound",
        "scales",
        PLAN,
        (("kMostSize = 0x1p63f;", "kMostSize = 0x1.fffffep127f;"),),
    ),
    M(
        "key-scale",
        "N10",
        "keys on which a product with the scale could overflow have no bound",
        "scales",
        PREPARE,
        (("kMost = 0x1p51f;", "kMost = 0x1.fffffep127f;"),),
    ),
    M(
        "floor",
        "N11",
        "underflow of the last multiplication, in the threshold",
        "underflow",
        ORDER,
        (("constexpr float kAbsolute = 0x1p-140f;", "constexpr float kAbsolute = 0.0f;"),),
    ),
]


def fail(text: str, status: int) -> None:
    """End with a line on stderr."""
    print(f"mutate_device_guards.py: {text}", file=sys.stderr)
    sys.exit(status)


def edited(mutant: Mutant, text: str) -> str:
    """Return the file without the term."""
    for old, new in mutant.edits:
        if text.count(old) != 1:
            fail(f"{mutant.file}: {text.count(old)} places match, expected 1: {old}", 2)
        text = text.replace(old, new)
    return text


def copy_tree(target: Path) -> None:
    """Copy the tracked files as they are now."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True
    ).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def build(folder: Path, jobs: int) -> int:
    """Build the whole engine's search and one for each term."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        copy_tree(tree)
        made = tree / "build"
        configure = ["cmake", "-S", str(tree), "-B", str(made), "-G", "Ninja"]
        for option in ("CUDA=ON", "CLI=OFF", "TESTS=OFF", "EXAMPLES=OFF", "WERROR=OFF"):
            configure += ["-D", f"DOSA_{option}"]
        for kernels in ("PORTABLE", "NATIVE"):  # the search runs on the card of the bounds
            architecture = "90a-real" if kernels == "PORTABLE" else "89-real"
            configure += ["-D", f"DOSA_{kernels}_ARCHITECTURES={architecture}"]
        if shutil.which("ccache"):
            for language in ("C", "CXX", "CUDA"):
                configure += ["-D", f"CMAKE_{language}_COMPILER_LAUNCHER=ccache"]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)

        def link(name: str) -> None:
            command = ["cmake", "--build", str(made), f"-j{jobs}", "--target", "gpu_search"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.copy(made / "bench" / "gpu_search", folder / name)

        link("whole")
        for mutant in MUTANTS:
            path = tree / mutant.file
            text = path.read_text(encoding="utf-8")
            path.write_text(edited(mutant, text), encoding="utf-8")
            link(mutant.name)
            path.write_text(text, encoding="utf-8")
            print(f"{mutant.name}: without {mutant.term}", file=sys.stderr)
    return 0


def search(program: Path, model: str) -> tuple[int, str]:
    """Return the violations found with a model and the first line about one."""
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "found.json"
        command = [str(program), "--model", model, "--rows", ROWS, "--keys", KEYS]
        ran = subprocess.run(
            [*command, "--json", str(result)],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        if not result.exists():
            fail(f"{program}: status {ran.returncode}: {ran.stdout}{ran.stderr}", 2)
        problems = json.loads(result.read_text(encoding="utf-8"))["problems"]
    lines = [line for line in ran.stdout.splitlines() if " violations, " in line]
    return sum(one["violations"] for one in problems), lines[0] if lines else ""


def run(folder: Path) -> int:
    """Print the table; return 1 where a term is not missed or is missed without reason."""
    bad = 0
    print("| | term that is taken out | model | violations | the first |\n|---|---|---|---|---|")
    for mutant in MUTANTS:
        kept, _ = search(folder / "whole", mutant.model)
        lost, line = search(folder / mutant.name, mutant.model)
        bad += kept != 0 or lost == 0
        first = re.search(r"H +(\d+) R' +(\d+) .*U (\S+) s (\S+),", line)
        where = "H = {}, R' = {}: U = {}, s = {}".format(*first.groups()) if first else ""
        shown = f"{lost:,}" if lost else "**none**"
        unasked = f" ({kept:,} with it!)" if kept else ""
        print(
            f"| {mutant.number} | {mutant.term} | {mutant.model} | {shown}{unasked} | {where} |",
            flush=True,
        )
    return min(1, bad)


def main() -> int:
    """Parse the arguments and do it."""
    parser = argparse.ArgumentParser(description="Does the device search miss a guard term?")
    parser.add_argument("action", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.action == "build":
        return build(args.folder.resolve(), args.jobs)
    return run(args.folder.resolve())


if __name__ == "__main__":
    sys.exit(main())
