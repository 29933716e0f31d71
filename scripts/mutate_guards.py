#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes each guard term out and shows which test notices.

The terms are those of guard_mutants.py. A scratch copy of the tree is built once, with every term
and the code without it side by side; DOSA_MUTANT=n picks the n-th at run time. For each, the test
programs that know its file run one after the other until one fails. Prints the table of
docs/numerics.md.

Exit status 1: a term whose loss no test notices, or tests that fail with all terms in place; 2: an
entry that does not match the code any more.

    scripts/mutate_guards.py [--only TEXT] [--build-dir DIR] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from guard_mutants import AT_RUN_TIME, MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent

# Who is asked, in this order, about a term in a file of this folder (or of this name).
PLAN = (
    "unit_exactness_guard_terms",
    "unit_exactness_guard_outward",
    "unit_exactness_integer_dots",
    "unit_exactness_guard_enclosures",
    "property_violations",
)
KERNEL = ("unit_exactness_backends", "property_violations")
ASKED = {
    "src/numeric/sm90_dot.cpp": ("unit_numeric_sm90_dot",),
    "src/numeric": ("unit_numeric_outward", *PLAN),
    "src/plan/key_tile_simd.cpp": KERNEL,
    "src/plan": (*PLAN, "unit_exactness_backends"),
    "src/screen/screen.hpp": PLAN,
    "src/screen": (*KERNEL, "unit_exactness_guard_terms"),
    "src/refine": (*KERNEL, "unit_exactness_guard_terms"),
    "src/engine": ("unit_exactness_guard_terms",),
}
PROGRAMS = tuple(dict.fromkeys(name for names in ASKED.values() for name in names))
TEST_SECONDS = 600

# Included before everything else in the copy.
SWITCH = """// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdlib>
namespace dosa_mutation {
inline int read() {
  const char* text = std::getenv("DOSA_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}
inline const int chosen = read();
}  // namespace dosa_mutation
#define DOSA_MUTANT(n) (dosa_mutation::chosen == (n))
"""


def fail(text: str, status: int) -> None:
    """End with a line on stderr."""
    print(f"mutate_guards.py: {text}", file=sys.stderr)
    sys.exit(status)


def edited(file: str, text: str) -> str:
    """Return the text of a source file with the choice of every mutant of it built in."""
    for path, old, new in AT_RUN_TIME:
        if path == file:
            if text.count(old) != 1:
                fail(f"{file}: {text.count(old)} places match, expected 1: {old}", 2)
            text = text.replace(old, new)
    choices: dict[str, str] = {}
    for number, mutant in enumerate(MUTANTS, start=1):
        if mutant.file != file:
            continue
        if text.count(mutant.old) != 1:
            fail(f"{file}: {text.count(mutant.old)} places match, expected 1: {mutant.old}", 2)
        choices.setdefault(mutant.old, "")
        choices[mutant.old] += f"DOSA_MUTANT({number}) ? ({mutant.new}) : "
    for old, choice in choices.items():
        if text.count(old) != 1:
            fail(f"{file}: two terms overlap: {old}", 2)
        text = text.replace(old, f"({choice}({old}))")
    return text


class Tree:
    """A scratch copy of the tracked files with all mutants in it."""

    def __init__(self, root: Path, jobs: int) -> None:
        self.root = root
        self.build = root / "build" / "mutation"
        self.jobs = jobs

    def write(self, name: str, text: bytes) -> None:
        """Write a file unless it says this already, so that it need not be compiled again."""
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)

    def make(self) -> None:
        """Copy the files as they are now, build the programs, check that they pass."""
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True
        ).stdout
        mutated = {mutant.file for mutant in MUTANTS}
        for name in listed.decode().split("\0"):
            if not name or not (ROOT / name).is_file():
                continue
            text = (ROOT / name).read_bytes()
            self.write(name, edited(name, text.decode()).encode() if name in mutated else text)
        self.write("switch.hpp", SWITCH.encode())
        flags = f"-O1 -include {self.root / 'switch.hpp'}"
        command = [
            "cmake",
            "-S",
            str(self.root),
            "-B",
            str(self.build),
            "-G",
            "Ninja",
            "-D",
            "CMAKE_BUILD_TYPE=Mutation",
            "-D",
            f"CMAKE_CXX_FLAGS_MUTATION={flags}",
            "-D",
            "DOSA_CLI=OFF",
            "-D",
            "DOSA_BENCH=OFF",
            "-D",
            "DOSA_EXAMPLES=OFF",
            "-D",
            "DOSA_WERROR=OFF",
        ]
        if shutil.which("ccache"):
            command += ["-D", "CMAKE_CXX_COMPILER_LAUNCHER=ccache"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            ["cmake", "--build", str(self.build), f"-j{self.jobs}", "--target", *PROGRAMS],
            check=True,
            stdout=sys.stderr,
        )
        for program in PROGRAMS:
            failed = self.failures(program, 0)
            if failed:
                fail(f"with all terms in place, {cell(failed)} fails", 1)

    def failures(self, program: str, number: int) -> list[str]:
        """Run a program with one mutant; the names of the tests that fail."""
        environment = {**os.environ, "DOSA_MUTANT": str(number)}
        try:
            ran = subprocess.run(
                [str(self.build / "tests" / program), "--gtest_brief=1"],
                capture_output=True,
                text=True,
                timeout=TEST_SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return [f"{program} (no end)"]
        if ran.returncode == 0:
            return []
        names = re.findall(r"^\[  FAILED  \] (\w+\.\w+)", ran.stdout, re.MULTILINE)
        return list(dict.fromkeys(names)) or [f"{program} (status {ran.returncode})"]


def killers(tree: Tree, number: int, mutant: Mutant) -> list[str]:
    """Return the tests of the first program that notices; none where the term is not missed."""
    for program in ASKED.get(mutant.file) or ASKED[str(Path(mutant.file).parent)]:
        failed = tree.failures(program, number)
        if failed:
            return failed
    return []


def cell(tests: list[str]) -> str:
    """Return up to two names and how many more there are."""
    if not tests:
        return "**none**"
    more = f" and {len(tests) - 2} more" if len(tests) > 2 else ""
    return ", ".join(f"`{name}`" for name in tests[:2]) + more


def run(tree: Tree, chosen: list[tuple[int, Mutant]]) -> int:
    """Print the table; return how many terms nobody missed."""
    started = time.monotonic()
    tree.make()
    missed = 0
    print("| | term that is taken out | file in src/ | test that fails |\n|---|---|---|---|")
    for number, mutant in chosen:
        tests = killers(tree, number, mutant)
        missed += 0 if tests else 1
        file = mutant.file.removeprefix("src/")
        term = mutant.term.replace("|", "\\|")
        print(f"| {mutant.number} | {term} | {file} | {cell(tests)} |", flush=True)
    print(
        f"{len(chosen)} terms, {missed} that no test misses, {time.monotonic() - started:.0f} s",
        file=sys.stderr,
    )
    return missed


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description="Which test notices that a guard term is missing?")
    parser.add_argument("--only", default="", help="terms whose number, name or file contains this")
    parser.add_argument("--build-dir", type=Path, help="kept between runs (default: a scratch one)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    chosen = [
        (n, m)
        for n, m in enumerate(MUTANTS, start=1)
        if args.only in f"{m.number} {m.term} {m.file}"
    ]
    if not chosen:
        parser.error(f"--only {args.only}: found no term")
    if args.build_dir is not None:
        return min(1, run(Tree(args.build_dir.resolve(), args.jobs), chosen))
    with tempfile.TemporaryDirectory() as scratch:
        return min(1, run(Tree(Path(scratch), args.jobs), chosen))


if __name__ == "__main__":
    sys.exit(main())
