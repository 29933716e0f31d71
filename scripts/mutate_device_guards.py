#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes each guard term of the device engine out and shows that the search notices.

    scripts/mutate_device_guards.py build DIR    # where nvcc is: one gpu_search for each term
    scripts/mutate_device_guards.py run DIR      # where the device is: prints the table
    scripts/mutate_device_guards.py survival DIR TRACE[:r] ...    # what the guard costs there

`build` copies the tracked files, edits one term at a time and links bench/gpu/search.cu with the
engine that lacks it; with all terms in place the program is DIR/whole. `run` searches with the
model that was made to show the term and prints the first violation. `survival` audits traces with
r retained heads (default 14) with the command as it is, DIR/dosa, and with DIR/dosa-bare, which
adds nothing for rounding: the share of pairs whose bound reaches their row's K-th score.

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
ROUNDING = "src/plan/product_rounding.hpp"
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
        (("  return __fadd_ru(allowance, products);", "  return products;"),),
    ),
    M(
        "projected",
        "S11",
        "rounding of the products of projected heads and their anchors",
        "parallel",
        PLAN,
        (("  return __fadd_ru(allowance, products);", "  return allowance;"),),
    ),
    M(
        "products",
        "S11, S13",
        "largest products of a k-step",
        "late",
        ROUNDING,
        (
            (
                "kRoundingSm90{0x1p-13f, 0x1p-13f * 33.0f, 0x1.99999ap-9f, true}",
                "kRoundingSm90{0x1p-13f, 0x1p-13f * 33.0f, 0.0f, true}",
            ),
        ),
    ),
    M(
        "prefixes",
        "S11",
        "partial sums of projected heads and their anchors",
        "parallel",
        ROUNDING,
        (
            (
                "kRoundingSm90{0x1p-13f, 0x1p-13f * 33.0f, 0x1.99999ap-9f, true}",
                "kRoundingSm90{0x1p-13f, 0.0f, 0x1.99999ap-9f, true}",
            ),
        ),
    ),
    M(
        "aggregated",
        "S13, S15",
        "rounding of the products of aggregated heads and of the aggregate's rows",
        "aggregated",
        PLAN,
        (
            (
                "    taken = aggregate(params, shared, q, scales, magnitude);",
                "    taken = 0.0f * aggregate(params, shared, q, scales, magnitude);",
            ),
        ),
    ),
    M(
        "heads",
        "S13",
        "rounding of the products of aggregated heads",
        "aggregated",
        PLAN,
        (("  return __fadd_ru(taken, aggregated_jointly(shared, q));", "  return taken;"),),
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
                "const bool prunable = prunable_scale(scale) && sum == sum;",
                "const bool prunable = sum == sum;",
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


# Everything that stands for a rounding is left out: not a bound of a computed score any more.
BARE = (
    (
        "    taken = aggregate(params, shared, q, scales, magnitude);\n",
        "    taken = 0.0f * aggregate(params, shared, q, scales, magnitude);\n"
        "    for (float& scale : scales) scale /= 1.0f - 2.0f * kShare;\n",
    ),
    ("  return __fadd_ru(allowance, products);", "  return allowance;"),
    (
        "  return __fmaf_ru(kRoundings, sizes, kUnderflow);",
        "  return 0.0f * __fmaf_ru(kRoundings, sizes, kUnderflow);",
    ),
)


def fail(text: str, status: int) -> None:
    """End with a line on stderr."""
    print(f"mutate_device_guards.py: {text}", file=sys.stderr)
    sys.exit(status)


def edited(file: str, edits: tuple[tuple[str, str], ...], text: str) -> str:
    """Return the file without the terms."""
    for old, new in edits:
        if text.count(old) != 1:
            fail(f"{file}: {text.count(old)} places match, expected 1: {old}", 2)
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
        for option in ("CUDA=ON", "CLI=ON", "TESTS=OFF", "EXAMPLES=OFF", "WERROR=OFF"):
            configure += ["-D", f"DOSA_{option}"]
        for kernels in ("PORTABLE", "NATIVE"):  # the search runs on the card of the bounds
            architecture = "90a-real" if kernels == "PORTABLE" else "89-real"
            configure += ["-D", f"DOSA_{kernels}_ARCHITECTURES={architecture}"]
        if shutil.which("ccache"):
            for language in ("C", "CXX", "CUDA"):
                configure += ["-D", f"CMAKE_{language}_COMPILER_LAUNCHER=ccache"]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)

        def link(name: str, target: str, program: str) -> None:
            command = ["cmake", "--build", str(made), f"-j{jobs}", "--target", target]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.copy(made / program, folder / name)

        def link_without(
            file: str, edits: tuple[tuple[str, str], ...], name: str, *what: str
        ) -> None:
            path = tree / file
            text = path.read_text(encoding="utf-8")
            path.write_text(edited(file, edits, text), encoding="utf-8")
            link(name, *what)
            path.write_text(text, encoding="utf-8")

        search_program = ("gpu_search", "bench/gpu_search")
        link("whole", *search_program)
        link("dosa", "dosa_command", "dosa")
        link_without(PLAN, BARE, "dosa-bare", "dosa_command", "dosa")
        for mutant in MUTANTS:
            link_without(mutant.file, mutant.edits, mutant.name, *search_program)
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


def survivors(program: Path, trace: str, heads: str) -> float:
    """Return the share of a trace's pairs whose bound reaches the K-th score, in percent."""
    command = [str(program), "verify", trace, "--backend", "cuda", "--mode", "dosa"]
    ran = subprocess.run(
        [*command, "--heads", heads, "--json"],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    try:
        found = json.loads(ran.stdout)
    except json.JSONDecodeError:
        fail(f"{program}: status {ran.returncode}: {ran.stdout}{ran.stderr}", 2)
    return 100 * (1 - found["rejected"] / found["visible"])


def survival(folder: Path, traces: list[str]) -> int:
    """Print what the guard costs on each trace."""
    print("| input | R' | without guard, % | with it, % | raised |\n|---|---|---|---|---|")
    for argument in traces:
        trace, _, heads = argument.partition(":")
        heads = heads or "14"
        bare = survivors(folder / "dosa-bare", trace, heads)
        guarded = survivors(folder / "dosa", trace, heads)
        raised = f"{100 * (guarded / bare - 1):+.1f}%"
        print(f"| {Path(trace).stem} | {int(heads) + 2} | {bare:.4f} | {guarded:.4f} | {raised} |")
    return 0


def main() -> int:
    """Parse the arguments and do it."""
    parser = argparse.ArgumentParser(description="Does the device search miss a guard term?")
    parser.add_argument("action", choices=("build", "run", "survival"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("traces", nargs="*", metavar="TRACE[:r]", help="for survival")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.action == "build":
        return build(args.folder.resolve(), args.jobs)
    if args.action == "survival":
        return survival(args.folder.resolve(), args.traces)
    return run(args.folder.resolve())


if __name__ == "__main__":
    sys.exit(main())
