# SPDX-License-Identifier: Apache-2.0
"""Figures of a study: what they show is what the study found."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dosa import plot
from dosa.__main__ import command

pytest.importorskip("matplotlib")

METRICS = ("survival_fixed", "survival_true", "scored_fixed", "scored_rising", "deficit_fixed")
NAMES = ("full certificate", "no aggregate", "aggregate all", "strength only", "no projection")


def case(facet: str, name: str, value: float, heads: int = 6) -> dict[str, Any]:
    metrics = {metric: value + n / 1000 for n, metric in enumerate(METRICS)}
    return {"facet": facet, "name": name, "options": {"heads": heads}, **metrics}


def study_input(layer: int, domain: str, value: float) -> dict[str, Any]:
    cases = [case("components", name, value + n / 10) for n, name in enumerate(NAMES)]
    cases.append(case("components", "defaults", value))
    for heads in (4, 8):
        cases.append(case("retained", f"paper's rules, r = {heads}", value, heads))
        cases.append(case("retained", f"defaults, r = {heads}", value / 2, heads))
    course = {"deficit": [0.5, 0.25], "scored": [value, value / 4]}
    return {
        "group": "made",
        "source": "numbers made up for a test",
        "layer": layer,
        "domain": domain,
        "shape": {"heads": 32, "keys": 1000, "topk": 10},
        "cases": cases,
        "trajectories": [{"name": name, **course} for name in ("paper's rules", "defaults")],
    }


@pytest.fixture
def made(tmp_path: Path) -> Path:
    cells = [(0, "en", 0.2), (1, "en", 0.1), (0, "zh", 0.3), (1, "zh", 0.4)]
    path = tmp_path / "made.json"
    path.write_text(json.dumps({"inputs": [study_input(*cell) for cell in cells]}))
    return path


def lines(figure: Any) -> dict[str, list[float]]:
    return {
        line.get_label(): [round(float(y), 6) for y in line.get_ydata()]
        for line in figure.axes[0].get_lines()
    }


def test_lines_are_the_means_of_the_inputs(made: Path) -> None:
    groups = plot.read([made])
    assert [group.label for group in groups] == ["made, 1,000 keys, K = 10"]
    by_heads = lines(plot.draw_by_heads(groups))
    assert by_heads["paper's rules, fixed threshold"] == [25.2, 25.2]  # mean of 0.2 0.1 0.3 0.4
    assert by_heads["defaults, rising threshold"] == [12.8, 12.8]
    assert by_heads["defaults, perfect threshold, no pool"] == [12.6, 12.6]
    assert by_heads["K of N: the least possible"] == [1.0, 1.0]
    by_layer = lines(plot.draw_by_layer(groups))
    assert by_layer["full certificate"] == [25.0, 25.0]  # layer 0: 0.2 0.3; layer 1: 0.1 0.4
    assert by_layer["no aggregate"] == [35.0, 35.0]
    assert by_layer["defaults, rising threshold"] == [25.3, 25.3]
    by_round = lines(plot.draw_by_round(groups))
    assert by_round["defaults, rising threshold"] == [25.0, 6.25]
    threshold = lines(plot.draw_threshold(groups))
    assert threshold["paper's rules, rising threshold"] == [0.5, 0.25]
    assert threshold["paper's rules, fixed threshold"] == [0.254, 0.254]


def test_the_heat_map_has_a_cell_for_each_layer_and_domain(made: Path) -> None:
    figure = plot.draw_heat_map(plot.read([made]))
    assert figure is not None
    cells = [text.get_text() for text in figure.axes[0].texts]
    assert cells == ["79.7", "89.7", "69.7", "59.7"]  # en, zh; layers 0, 1; scored is + 0.003
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["en", "zh"]


def test_the_same_study_gives_the_same_readable_files(made: Path, tmp_path: Path) -> None:
    arguments = [str(made), "-o", str(tmp_path / "one"), "--format", "svg", "png"]
    assert plot.main(arguments) == 0
    assert plot.main([str(made), "-o", str(tmp_path / "two")]) == 0
    drawn = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert drawn == sorted(f"{name}.svg" for name in plot.FIGURES)
    for name in drawn:
        text = (tmp_path / "one" / name).read_text(encoding="utf-8")
        assert text == (tmp_path / "two" / name).read_text(encoding="utf-8")
        assert "numbers made up for a test" in text
        ElementTree.fromstring(text)
        assert (tmp_path / "one" / name).with_suffix(".png").stat().st_size > 1000


def test_draws_what_the_command_writes(trace_path: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.json"
    arguments = ["study", str(trace_path), "-k", "256", "--sample", "1", "--widths", "4,14"]
    subprocess.run([command(), *arguments, "--json", study], check=True, stdout=subprocess.DEVNULL)
    names = [path.stem for path in plot.draw(plot.read([study]), tmp_path, ["svg"])]
    assert names == ["components", "survival_by_heads", "survival_by_round", "threshold"]
    text = (tmp_path / "components.svg").read_text(encoding="utf-8")
    assert "16,384 keys" in text
    assert "held-out code" in text


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"inputs": []}', '{"inputs": [{"a": 1}]}'])
def test_refuses_what_is_no_study(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    assert plot.main([str(path), "-o", str(tmp_path / "figures")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dosa.plot: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "figures").exists()
