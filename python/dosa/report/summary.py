# SPDX-License-Identifier: Apache-2.0
"""The summary in Markdown: the same answers, and the tables that are not only to look things up."""

from __future__ import annotations

from collections.abc import Sequence

from dosa.report.blocks import Block, Figure, Section, Table, Text, Value
from dosa.report.data import Data
from dosa.report.machine_table import machine_rows
from dosa.report.overview import Overview
from dosa.report.page import TITLE


def summary(data: Data, top: Overview, sections: Sequence[Section]) -> str:
    """Return the summary's text; the same raw results give the same bytes."""
    lines = [f"# {TITLE}", "", f"Scale: {data.scale}. The whole report: [page](index.html).", ""]
    if data.problems:
        lines += [f"{len(data.problems)} cells of the plan are missing:", ""]
        lines += [*(f"- {_plain(line)}" for line in data.problems), ""]
    for question, answer in top.answers:
        lines += [f"**{question}** {_plain(answer)}", ""]
    lines += ["## What came out", "", *(f"- {_plain(line)}" for line in top.results), ""]
    lines += ["## Where it loses", "", *(f"- {_plain(line)}" for line in top.losses), ""]
    if top.table is not None:
        lines += _lines(top.table)
    for section in sections:
        if section.blocks:
            lines += [f"## {section.title}", ""]
            for block in section.blocks:
                lines += _lines(block)
    rows = [list(row) for row in machine_rows(data)]
    lines += ["## Machine and build", "", *_lines(Table("", ["", ""], rows))]
    return "\n".join(lines).rstrip() + "\n"


def _lines(block: Block) -> list[str]:
    if isinstance(block, Text):
        return [_plain(block.text), ""]
    if isinstance(block, Figure):
        sentence = _plain(block.sentence)
        return [f"![{_plain(block.name)}](figures/{block.name}.svg)", "", sentence, ""]
    if block.folded:
        return []
    lines = [_plain(block.caption), ""] if block.caption else []
    lines.append("| " + " | ".join(_plain(name) for name in block.columns) + " |")
    marks = ["---" if n == 0 or n in block.prose else "---:" for n in range(len(block.columns))]
    lines.append("|" + "|".join(marks) + "|")
    lines += ["| " + " | ".join(_value(value) for value in row) + " |" for row in block.rows]
    return [*lines, ""]


def _value(value: str | Value) -> str:
    if isinstance(value, str):
        return _plain(value)
    if value.file:
        return f"[{value.text}](raw/{value.file})"
    if value.cell:
        return f"[{value.text}](raw/{value.cell}.json)"
    return f"**{value.text}**" if value.loss else value.text


def _plain(text: str) -> str:
    """Keep Markdown from reading marks into text."""
    for mark in ("\\", "|", "*", "_", "<"):
        text = text.replace(mark, "\\" + mark)
    return text
