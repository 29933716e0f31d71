# SPDX-License-Identifier: Apache-2.0
"""`python -m dosa.report`: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dosa.report.again import kept
from dosa.report.data import Data
from dosa.report.measure import MeasureError, measure
from dosa.report.others import DECODE, MODEL
from dosa.report.plan import FULL, QUICK, Cell, cells
from dosa.report.plan_device import DEVICE_FULL, DEVICE_QUICK, device_cells
from dosa.report.raw import RawError, Store
from dosa.report.write import write

SUCCESS, INCOMPLETE, MISUSE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, then write the page; return the exit status."""
    args = _parser().parse_args(arguments)
    folder = Path(args.output)
    store = Store(folder / "raw")
    name, planned = _plan(args)
    try:
        store.keep(DECODE, map(Path, args.decode))
        store.keep(MODEL, map(Path, args.model))
        if args.second is not None:
            _keep_second(store, Store(Path(args.second) / "raw"))
        return report(
            folder,
            store,
            None if args.from_raw else planned,
            scale=name,
            commit=args.commit,
            only=args.only,
        )
    except (MeasureError, RawError, OSError) as error:
        print(f"dosa.report: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        print("dosa.report: interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def _keep_second(store: Store, other: Store) -> None:
    name, planned = other.read_plan()
    store.write_second(kept(Data.load(other, name, planned)))


def _plan(args: argparse.Namespace) -> tuple[str, list[Cell]]:
    """Return the scale's name and its cells."""
    traces, peers = tuple(args.trace), tuple(args.peer)
    if args.backend == "cuda":
        chosen = DEVICE_QUICK if args.quick else DEVICE_FULL
        retrieval = tuple(args.retrieval)
        device = replace(chosen, traces=traces, peers=peers, retrieval=retrieval)
        return device.name, device_cells(device)
    scale = QUICK if args.quick else FULL
    scale = replace(scale, threads=args.threads, traces=traces, peers=peers)
    return scale.name, cells(scale)


def report(
    folder: Path,
    store: Store,
    planned: list[Cell] | None,
    *,
    scale: str = "",
    commit: str | None = None,
    only: Sequence[str] = (),
) -> int:
    """Measure a plan, or nothing where it is None, and write the page of what is there.

    Returns
    -------
    int
        SUCCESS, or INCOMPLETE where a cell of the plan is missing.
    """
    if planned is not None:
        store.write_plan(scale, planned)
        now = [cell for cell in planned if not only or cell.section in only]
        measure(store, now, commit=commit)
    name, planned = store.read_plan()
    data = Data.load(store, name, planned)
    if not data.raws:
        raise RawError(f"{store.folder}: found no usable result, expected those of a measurement")
    write(folder, data)
    for problem in data.problems:
        print(problem, file=sys.stderr)
    print(f"{folder / 'index.html'}: {len(data.raws)} of {len(planned)} cells")
    return INCOMPLETE if data.problems else SUCCESS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dosa.report",
        description="Measure this machine and write a page about it. Measured cells are kept: "
        "the same command goes on where it was stopped.",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="where everything goes"
    )
    parser.add_argument(
        "--backend", choices=("cpu", "cuda"), default="cpu", help="which engine is measured"
    )
    parser.add_argument("--quick", action="store_true", help="minutes instead of an hour")
    parser.add_argument(
        "--from-raw", action="store_true", help="measure nothing, write the page of what is there"
    )
    parser.add_argument(
        "--trace", nargs="+", default=[], metavar="FILE", help="measure these files as well"
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="time somebody else's library as well (docs/report.md)",
    )
    parser.add_argument(
        "--retrieval", nargs="+", default=[], metavar="FILE", help="inputs of the part on retrieval"
    )
    parser.add_argument(
        "--decode", nargs="+", default=[], metavar="JSON", help="show what bench/gpu/decode wrote"
    )
    parser.add_argument(
        "--model", nargs="+", default=[], metavar="JSON",
        help="show what bench/prefill_transformers.py wrote",
    )  # fmt: skip
    parser.add_argument(
        "--second", metavar="DIR", help="compare with the report of another run of the plan"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SECTION",
        help="measure only these parts of the plan now: grid, crossover, map, ...",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="0: as many as the machine has"
    )
    parser.add_argument(
        "--commit", metavar="TEXT", help="the commit that was built, where git cannot tell"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
