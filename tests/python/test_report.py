# SPDX-License-Identifier: Apache-2.0
"""The report: measured once, resumed, made again from its raw results, honest about gaps."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dosa.report import measure as measuring
from dosa.report.__main__ import INCOMPLETE, MISUSE, SUCCESS, main, report
from dosa.report.plan import FULL, QUICK, Cell, Scale, cells
from dosa.report.plan_device import DEVICE_FULL, DEVICE_QUICK, device_cells
from dosa.report.raw import Store

TINY = replace(
    QUICK,
    name="tiny",
    sources=QUICK.sources[:1],
    variants=QUICK.variants[:1],
    grid_keys=(1024,),
    grid_queries=(4,),
    crossover_keys=(512, 1024),
    crossover_queries=4,
    layers=(0, 2),
    layer_keys=4352,  # 65 rows, 64 tokens apart, must fit
    ablation_queries=4,
    map_queries=2,
    map_domains=("en", "code"),
    map_repeats=2,
    memory_keys=(512, 1024),
    memory_queries=(4,),
    study_rows=2,
    repeats=2,
    topk=64,
    threads=2,
)


class Page(HTMLParser):
    """Looks at the structure: what is open, what is linked, what has which name."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            if name == "id":
                self.names.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, trace_path: Path) -> Path:
    """A report of a tiny grid, with a trace."""
    folder = tmp_path_factory.mktemp("report")
    assert make(folder, Store(folder / "raw"), tiny(trace_path)) == SUCCESS
    return folder


@pytest.fixture
def copied(measured: Path, tmp_path: Path) -> Path:
    """A copy of it, to break."""
    (tmp_path / "raw").mkdir()
    for path in (measured / "raw").iterdir():
        (tmp_path / "raw" / path.name).write_bytes(path.read_bytes())
    return tmp_path


def make(folder: Path, store: Store, scale: Scale) -> int:
    return report(folder, store, cells(scale), scale=scale.name)


def tiny(trace_path: Path) -> Scale:
    return replace(TINY, traces=(str(trace_path),))


def files(folder: Path) -> dict[str, bytes]:
    found = [*folder.glob("*.*"), *(folder / "figures").iterdir()]
    return {path.name: path.read_bytes() for path in found if path.is_file()}


def samples(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, list[float]]]]:
    """Each entry of the raw files of the grid, and its samples by mode."""
    for path in sorted((folder / "raw").glob("grid-*.json")):
        for entry in json.loads(path.read_text())["result"]["cells"]:
            yield entry, {mode["mode"]: mode["wall_s"] for mode in entry["modes"]}


def test_raw_results_say_where_they_are_from(measured: Path) -> None:
    names = {path.stem for path in (measured / "raw").iterdir()} - {"plan"}
    assert len(names) == 1 + 1 + 2 + 3 * 2 + 2  # grid, trace, crossover, by layer, memory
    for name in names:
        raw = json.loads((measured / "raw" / f"{name}.json").read_text())
        assert raw["cell"] == name
        assert raw["command"][0] in ("bench", "study")
        assert re.fullmatch("[0-9a-f]{64}", raw["build"]["sha256"])
        assert raw["machine"]["usable"] >= 1
        assert raw["seconds"] > 0


def test_page_stands_alone_and_its_links_lead_somewhere(measured: Path) -> None:
    text = (measured / "index.html").read_text()
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert page.tags.count("svg") >= 8
    assert len(page.names) == len(set(page.names))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.names
        else:
            assert (measured / link).is_file(), link
    outside = set(re.findall(r"[a-z]+://[^\s\"'<>)]+", text))
    assert outside == {"http://www.w3.org/2000/svg"}  # a name, which nothing fetches
    assert "url(" not in text


def test_page_answers_what_a_reader_asks(measured: Path) -> None:
    text = Page((measured / "index.html").read_text()).text
    for words in (
        "What is compared?",
        "On what?",
        "How often?",
        "What is exact?",
        "Where it loses",
    ):
        assert words in text
    for words in ("1.12-2.74 over SGLang", "95.06%", "251 of 252", "9.94 GiB"):  # the paper's
        assert words in text
    assert "Not measured." not in text


def test_numbers_are_those_of_the_samples(measured: Path) -> None:
    text = Page((measured / "index.html").read_text()).text
    for _, walls in samples(measured):
        for over in ("base", "full"):
            ratios = [a / b for a, b in zip(walls[over], walls["auto"], strict=True)]
            written = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            assert written in text


def test_every_number_of_retained_heads_has_its_column(measured: Path) -> None:
    page = Page((measured / "index.html").read_text())
    (path,) = (measured / "raw").glob("trace-*.json")
    modes = json.loads(path.read_text())["result"]["cells"][0]["modes"]
    heads = [mode["heads"] for mode in modes if mode["mode"] == "dosa"]
    assert len(heads) == 3
    for number in heads:
        assert f"dosa r={number}, ms" in page.text


def test_figures_are_xml_and_carry_their_colours(measured: Path) -> None:
    figures = list((measured / "figures").glob("*.svg"))
    assert len(figures) >= 8
    for path in figures:
        root = ElementTree.fromstring(path.read_text())
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
        assert "prefers-color-scheme:dark" in path.read_text()
        for element in root.iter():  # no coordinate that is not a number
            assert "nan" not in " ".join(element.attrib.values())


def test_summary_links_lead_somewhere(measured: Path) -> None:
    text = (measured / "summary.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10
    for target in targets:
        assert (measured / target).is_file(), target


def test_resuming_measures_only_what_is_missing(
    copied: Path, trace_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = measuring._run

    def counted(command: str, cell: Cell) -> tuple[dict[str, Any] | None, str]:
        ran.append(cell.name)
        return run(command, cell)

    monkeypatch.setattr(measuring, "_run", counted)
    store = Store(copied / "raw")
    assert make(copied, store, tiny(trace_path)) == SUCCESS
    assert ran == []
    lost = next(iter((copied / "raw").glob("grid-*.json")))
    lost.unlink()
    assert make(copied, store, tiny(trace_path)) == SUCCESS
    assert ran == [lost.stem]


def test_the_page_is_made_again_byte_for_byte(measured: Path, copied: Path) -> None:
    assert main(["--from-raw", "-o", str(copied)]) == SUCCESS
    assert files(copied) == files(measured)


def test_gaps_are_reported(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut, gone, other = sorted((copied / "raw").glob("map-*.json"))[0], *sorted(
        (copied / "raw").glob("memory-*.json")
    )  # fmt: skip
    cut.write_text(cut.read_text()[:100])
    gone.unlink()
    content = json.loads(other.read_text())
    content["command"][-1] = "--other"
    other.write_text(json.dumps(content))
    assert main(["--from-raw", "-o", str(copied)]) == INCOMPLETE
    errors = capsys.readouterr().err
    text = Page((copied / "index.html").read_text()).text
    for said in (errors, text, (copied / "summary.md").read_text().replace("\\", "")):
        assert f"{cut.name}: not readable as JSON" in said
        assert f"{gone.name}: missing" in said
        assert f"{other.name}: measured by another command" in said
    assert "3 cells of the plan are missing" in text


def test_a_result_without_samples_is_no_result(copied: Path) -> None:
    path = next(iter((copied / "raw").glob("grid-*.json")))
    content = json.loads(path.read_text())
    del content["result"]["cells"][0]["modes"][0]["wall_s"]
    path.write_text(json.dumps(content))
    assert main(["--from-raw", "-o", str(copied)]) == INCOMPLETE
    assert "Not measured." in (copied / "index.html").read_text()


def test_builds_are_not_mixed(
    copied: Path, trace_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "build_facts", lambda *_: {"sha256": "0" * 64})
    next(iter((copied / "raw").glob("grid-*.json"))).unlink()
    with pytest.raises(measuring.MeasureError, match="another build"):
        make(copied, Store(copied / "raw"), tiny(trace_path))


def test_failures_do_not_stop_the_others(
    copied: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    scale = replace(TINY, traces=(str(tmp_path / "absent.safetensors"),))
    assert make(copied, Store(copied / "raw"), scale) == INCOMPLETE
    errors = capsys.readouterr().err
    assert "trace-0-absent: dosa ended with 2" in errors
    assert (copied / "index.html").is_file()


def test_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from-raw", "-o", str(tmp_path / "nothing")]) == MISUSE
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


def test_a_gpu_that_is_not_there_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there may be a GPU")
    assert main(["--backend", "cuda", "--quick", "-o", str(tmp_path)]) == MISUSE
    errors = capsys.readouterr().err.strip().splitlines()
    assert "--backend: found" in errors[-1]
    assert sum("--backend" in line for line in errors) == 1


def test_plans_have_what_the_documents_say() -> None:
    full, quick = cells(FULL), cells(QUICK)
    for plan in (full, quick):
        assert len({cell.name for cell in plan}) == len(plan)
    inputs = len(FULL.variants) * len(FULL.map_domains) * len(FULL.map_seeds)
    assert inputs * len(FULL.layers) == 252
    assert sum(cell.section == "grid" for cell in full) == 3 * 2 * 7
    assert sum(cell.estimate for cell in full) < 3600
    assert sum(cell.estimate for cell in quick) < 600
    device, short = device_cells(DEVICE_FULL), device_cells(DEVICE_QUICK)
    for plan in (device, short):
        assert len({cell.name for cell in plan}) == len(plan)
    assert len(DEVICE_FULL.grid_keys) * len(DEVICE_FULL.grid_queries) * 3 == 60
    inputs = len(DEVICE_FULL.variants) * len(DEVICE_FULL.map_domains) * len(DEVICE_FULL.map_seeds)
    assert inputs * len(DEVICE_FULL.layers) == 252
    layers = sum(len(layers_of(cell)) for cell in device if cell.section == "map")
    assert layers * inputs / len(DEVICE_FULL.variants) == 252
    assert sum(cell.estimate for cell in device) < 600
    assert sum(cell.estimate for cell in short) < 240


def layers_of(cell: Cell) -> list[str]:
    words = cell.command[cell.command.index("--gen") + 1].split()
    return words[words.index("--layer") + 1].split(",")


def test_a_page_of_a_gpu(tmp_path: Path) -> None:
    """Made results of the device's plan: every section that it has is on the page."""
    store = made_report(tmp_path)
    assert report(tmp_path, store, None) == SUCCESS
    page = Page((tmp_path / "index.html").read_text())
    assert {"grid", "traces", "ablation", "map", "crossover", "memory", "phases"} <= set(page.names)
    assert {"retrieval"} <= set(page.names)
    assert {"decode", "model", "again"}.isdisjoint(page.names)
    assert "auto against other (somebody else's kernels): 5.04 times as fast" in page.text
    assert "99.990%" in page.text
    assert "other was never faster, in 55." in page.text
    assert "no results were given with --decode" in page.text
    assert "figure-phases" in page.names
    assert "components" not in page.names
    for words in ("a card of a test", "4 TB/s", "1200 TFLOP/s", "1500 to 1500 MHz", "sm90"):
        assert words in page.text
    # full takes 200 ms and its floor is 100, dosa 60 over 20 + 10.
    assert "2.00" in page.text
    assert "Not measured." not in page.text


def test_results_of_other_programs_are_shown(tmp_path: Path) -> None:
    step: dict[str, Any] = {"batch": 1, "heads": 32, "overlap": 0.5}
    step["us"] = {"witnesses": [40.0, 41.0], "none": [44.0, 45.0], "peer": [60.0, 61.0]}
    steps = [{**step, "keys": keys << 10} for keys in (256, 512, 1024)]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    one = {"kind": "glm_moe_dsa", "device": "cuda"}
    runs = [
        {**one, "side": side, "context": context, "seconds": seconds, "gib": 0.5}
        for side, seconds in (("unpatched", 3.0), ("fp8", 2.0))
        for context in (4096, 8192)
    ]
    runs.append({**one, "side": "unpatched", "context": 16384, "failed": "out of memory"})
    (tmp_path / "runs.jsonl").write_text("\n".join(json.dumps(run) for run in runs))
    folder = tmp_path / "report"
    made_report(folder)
    arguments = ["--from-raw", "-o", str(folder)]
    given = ["--decode", str(tmp_path / "steps.json"), "--model", str(tmp_path / "runs.jsonl")]
    assert main([*arguments, *given]) == SUCCESS
    first = (folder / "index.html").read_bytes()
    page = Page(first.decode())
    assert {"decode", "model", "figure-decode-32", "figure-model-glm-moe-dsa"} <= set(page.names)
    for words in ("1.49 (1.49-1.50)", "1.50 at 8K (glm_moe_dsa, 4 layers)", "out of memory"):
        assert words in page.text
    assert {"raw/decode/steps.json", "raw/model/runs.jsonl"} <= set(page.links)
    assert main(arguments) == SUCCESS  # what was given is kept
    assert (folder / "index.html").read_bytes() == first


def test_a_second_run_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("first", "second"):
        made_report(tmp_path / name)
    changed = next((tmp_path / "second" / "raw").glob("memory-*.json"))
    content = json.loads(changed.read_text())
    for mode in content["result"]["cells"][0]["modes"]:
        if mode["mode"] == "auto":
            mode["wall_s"] = [2 * value for value in mode["wall_s"]]
    changed.write_text(json.dumps(content))
    arguments = ["--from-raw", "-o", str(tmp_path / "first")]
    assert main([*arguments, "--second", str(tmp_path / "second")]) == SUCCESS
    page = Page((tmp_path / "first" / "index.html").read_text())
    assert "again" in page.names
    assert "by the same build" in page.text
    rows = (tmp_path / "first" / "summary.md").read_text().splitlines()
    (memory,) = [row for row in rows if row.startswith("| memory |")]
    assert memory == "| memory | 6 of 8 | 0.0% | 100.0% |"
    assert main([*arguments, "--second", str(tmp_path / "absent")]) == MISUSE
    assert "found no" in capsys.readouterr().err


def test_parts_can_be_measured_by_themselves(
    copied: Path, trace_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in [*(copied / "raw").glob("grid-*"), *(copied / "raw").glob("memory-*")]:
        path.unlink()
    ran: list[str] = []

    def noted(_: Store, now: list[Cell], **__: object) -> int:
        ran.extend(cell.section for cell in now)
        return 0

    monkeypatch.setattr("dosa.report.__main__.measure", noted)
    scale = tiny(trace_path)
    store = Store(copied / "raw")
    found = report(copied, store, cells(scale), scale=scale.name, only=("memory",))
    assert set(ran) == {"memory"}
    assert found == INCOMPLETE


def made_report(folder: Path) -> Store:
    store = Store(folder / "raw")
    traces = ("somewhere/code.safetensors",)
    scale = replace(DEVICE_QUICK, traces=traces, retrieval=traces, peers=("other=library.so",))
    planned = device_cells(scale)
    for cell in planned:
        store.write(cell, made_facts(), made_result(cell))
    store.write_plan(scale.name, planned)
    return store


def made_facts() -> dict[str, Any]:
    state = {"load_1min": 1.0, "gpu": {"mhz": 1500.0, "watts": 600.0}}
    return {
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.5,
        "machine": {"processor": "a processor", "processors": 2, "usable": 2},
        "state": [state, state],
        "build": {"sha256": "0" * 64},
    }


def made_result(cell: Cell) -> dict[str, Any]:
    words = list(cell.command)
    option = {name: words[words.index(name) + 1] for name in ("--keys", "--rows", "--modes")}
    made = words[words.index("--gen") + 1] if "--gen" in words else "code.safetensors"
    peer = {"mode": "other", "heads": 0, "wall_s": [0.3, 0.31], "ids_in_common": 0.9999}
    peers = [peer] if "--peer" in words else []
    entries = [
        {
            **{"input": made, "source": "made", "domain": "en", "layer": 2, "seed": 1},
            **{"Q": int(rows), "N": int(keys), "H": 32, "D": 128, "K": 2048},
            "modes": [*map(made_mode, option["--modes"].split(",")), *peers],
        }
        for rows in option["--rows"].split(",")
        for keys in option["--keys"].split(",")
    ]
    ceilings = {
        "copy": {"how": "copied", "rates": [4e12]},
        "product": {"how": "multiplied", "rates": [1.2e15]},
    }
    return {"backend": "cuda", "device": "a card of a test", "ceilings": ceilings, "cells": entries}


def made_mode(name: str) -> dict[str, Any]:
    screens = name in ("auto", "dosa", "screen")
    phases = {"screen": [0.04], "refine": [0.02]} if screens else {"dense": [0.2]}
    return {
        **{"mode": name, "heads": 6 if screens else 0, "workspace_bytes": 1 << 30},
        **{"wall_s": [0.06, 0.061] if screens else [0.2, 0.201], "visible": 1000},
        **{"screening_rows": 8 if screens else 0, "refined_pairs": 20.0, "phases_s": phases},
        "floors_s": {"every_key": 0.1, "screen": 0.02, "refine": 0.01, "bytes": 0.001},
    }
