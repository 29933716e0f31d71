# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that needs nothing else, and no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dosa.report.blocks import Block, Figure, Section, Table, Text, Value
from dosa.report.data import Data
from dosa.report.machine_table import machine_rows
from dosa.report.overview import Overview
from dosa.report.theme import CHART, COLOURS, PAGE

TITLE = "DoSA on this machine: every configuration, measured"


def page(data: Data, top: Overview, sections: Sequence[Section]) -> str:
    """Return the page's text; the same raw results give the same bytes."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(TITLE)}</title>",
        f"<style>\n{COLOURS}{PAGE}{CHART}</style>\n</head>\n<body>",
        f"<h1>{escape(TITLE)}</h1>",
        *_top(data, top),
        _contents(sections),
    ]
    for section in sections:
        parts.append(f'<section id="{section.key}">\n<h2>{escape(section.title)}</h2>')
        parts += [_block(block) for block in section.blocks]
        if not section.blocks:
            parts.append("<p>Not measured.</p>")
        parts.append("</section>")
    parts += [*_machine(data), *_cells(data), "</body>\n</html>"]
    return "\n".join(parts) + "\n"


def _top(data: Data, top: Overview) -> list[str]:
    parts = [
        "<p>An indexer of sparse attention picks, for every query, the K keys with the highest "
        "scores. This page measures how fast that is when most keys are rejected by a cheap upper "
        f"bound instead of being scored in full. Scale: {escape(data.scale)}.</p>"
    ]
    if data.problems:
        listed = "".join(f"<li>{escape(line)}</li>" for line in data.problems)
        parts.append(
            f'<div class="problems"><p>{len(data.problems)} cells of the plan are missing:</p>'
            f"<ul>{listed}</ul></div>"
        )
    if len(data.builds) > 1:
        parts.append(
            '<div class="problems"><p>These cells were measured by '
            f"{len(data.builds)} different builds; do not compare them.</p></div>"
        )
    answers = "".join(
        f"<dt>{escape(question)}</dt><dd>{escape(answer)}</dd>" for question, answer in top.answers
    )
    parts.append(f"<dl>{answers}</dl>")
    parts.append('<h2 id="results">What came out</h2>' + _list(top.results or ["Nothing yet."]))
    parts.append('<div class="losses"><h2 id="losses">Where it loses</h2>' + _list(top.losses))
    if top.table is not None:
        parts.append(_block(top.table))
    parts.append("</div>")
    return parts


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _contents(sections: Sequence[Section]) -> str:
    links = [(section.key, section.title) for section in sections]
    links += [("machine", "Machine and build"), ("cells", "Commands and raw results")]
    items = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in links)
    return f"<nav><h2>Contents</h2><ul>{items}</ul></nav>"


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f"<p>{escape(block.text)}</p>"
    if isinstance(block, Figure):
        return (
            f'<figure id="figure-{block.name}"><figcaption>{escape(block.sentence)}</figcaption>'
            f'<div class="wide">{block.svg}</div></figure>'
        )
    return _table(block)


def _table(table: Table) -> str:
    heads = []
    for n, name in enumerate(table.columns):
        kind = ' class="left"' if n in table.prose else ""
        heads.append(f'<th scope="col"{kind}>{escape(name)}</th>')
    rows = [
        "<tr>" + "".join(_cell(value, n in table.prose) for n, value in enumerate(row)) + "</tr>"
        for row in table.rows
    ]
    text = (
        f'<div class="wide"><table><thead><tr>{"".join(heads)}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )
    if not table.folded:
        caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
        return caption + text
    return f"<details><summary>{escape(table.caption)} ({len(rows)} rows)</summary>{text}</details>"


def _cell(value: str | Value, prose: bool) -> str:
    kind = ' class="text"' if prose else ""
    if isinstance(value, str):
        return f"<td{kind}>{escape(value)}</td>"
    if value.file:
        return f'<td><a href="raw/{escape(value.file)}">{escape(value.text)}</a></td>'
    if value.cell:
        return f'<td><a href="#cell-{escape(value.cell)}">{escape(value.text)}</a></td>'
    kind = ' class="loss"' if value.loss else kind
    return f"<td{kind}>{escape(value.text)}</td>"


def _machine(data: Data) -> list[str]:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td></tr>'
        for name, value in machine_rows(data)
    )
    return [
        '<section id="machine">\n<h2>Machine and build</h2>',
        f'<div class="wide"><table><tbody>{rows}</tbody></table></div></section>',
    ]


def _cells(data: Data) -> list[str]:
    rows = []
    for raw in data.raws:
        name = raw.cell.name
        words = " ".join(f'"{word}"' if " " in word else word for word in raw.cell.command)
        rows.append(
            f'<tr id="cell-{escape(name)}"><td><a href="raw/{escape(name)}.json">{escape(name)}</a>'
            f'</td><td class="text"><code>dosa {escape(words)}</code></td>'
            f"<td>{escape(raw.facts['started'])}</td><td>{raw.facts['seconds']:.1f} s</td></tr>"
        )
    return [
        '<section id="cells">\n<h2>Commands and raw results</h2>',
        "<p>Every number above links to a line of this table: the command that measured it, and "
        "the file with every sample, beside this page. <code>python -m dosa.report --from-raw -o "
        "DIR</code> makes this page again from those files, byte for byte.</p>",
        '<div class="wide"><table><thead><tr><th>raw result</th><th class="left">command</th>'
        "<th>started</th><th>took</th></tr></thead><tbody>",
        *rows,
        "</tbody></table></div></section>",
    ]
