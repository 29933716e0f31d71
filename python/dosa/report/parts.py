# SPDX-License-Identifier: Apache-2.0
"""Sections about the parts: which of the two savings does what, and what the certificate needs."""

from __future__ import annotations

from dosa.report.blocks import Block, Figure, Section, Table, Text, Value
from dosa.report.charts import Series, bar_chart, line_chart
from dosa.report.data import Data, Entry, Parts, keys_text
from dosa.report.statistics import mean
from dosa.report.words import percent, significant

ABLATION = ("base", "full", "screen", "dosa")
VARIANTS = ("full certificate", "no aggregate", "aggregate all", "strength only", "no projection")


def ablation(data: Data) -> Section:
    """Screening and sparse writing, each alone and together."""
    section = Section("ablation", "2. What each saving does alone")
    entries = data.entries("ablation")
    if not entries:
        return section
    one = entries[0]
    layers = len({entry.layer for entry in entries})
    groups = []
    rows: list[list[str | Value]] = []
    for variant in variants(entries):
        means = ablation_means(entries, variant)
        groups.append((variant, list(means.items())))
        for name, value in means.items():
            saved = "" if name == "base" else f"{100 * (1 - value / means['base']):.1f}%"
            rows.append([f"{variant}, {name}", significant(value), saved])
    sentence = (
        f"Time of one call with {one.queries} query rows and {keys_text(one.keys)} keys, mean over "
        f"{layers} layers; shorter is better. base scores every key and keeps all scores; full "
        "keeps only scores that reach the threshold; screen leaves out keys by their bound and "
        "keeps every survivor's score; dosa does both."
    )
    caption = (
        "Means over the layers of each layer's median. 'Saved' is relative to base. The layers' "
        "own numbers are in the table below."
    )
    chart = bar_chart("Mean time by mode", "milliseconds, mean over layers", groups, "ms")
    section.blocks = [
        Figure("ablation", sentence, chart),
        Table(caption, ["variant, mode", "mean ms", "saved"], rows),
        Table("By layer, ms.", ["input", *ABLATION, ""], _layers(entries), folded=True),
    ]
    return section


def variants(entries: list[Entry]) -> list[str]:
    """Return the variants, in the order of their first appearance."""
    return list(dict.fromkeys(entry.variant for entry in entries))


def ablation_means(entries: list[Entry], variant: str) -> dict[str, float]:
    """Return the mean time over layers of each mode that all of them have, ms."""
    mine = [entry for entry in entries if entry.variant == variant]
    names = [name for name in ABLATION if all(name in entry.modes for entry in mine)]
    return {name: mean(entry.modes[name].milliseconds for entry in mine) for name in names}


def _layers(entries: list[Entry]) -> list[list[str | Value]]:
    return [
        [
            f"{entry.variant}, layer {entry.layer}",
            *(
                significant(entry.modes[name].milliseconds) if name in entry.modes else "-"
                for name in ABLATION
            ),
            Value("raw", cell=entry.cell),
        ]
        for entry in entries
    ]


def components(data: Data) -> Section:
    """Show the certificate with one part changed at a time."""
    section = Section("components", "3. What the certificate needs")
    if not data.parts:
        return section
    section.blocks.append(
        Text(
            "The certificate with one part changed at a time, by the paper's rules (seeds and a "
            "fixed threshold from an older row). 'Survive' is the share of keys whose bound "
            "reaches that threshold, replayed on single rows; times are calls of the library on "
            f"all {data.parts[0].queries} rows of the input, and include reducing a full pool of "
            "records. All of them return the same ids."
        )
    )
    for variant in dict.fromkeys(one.variant for one in data.parts):
        section.blocks += _component_blocks(
            variant, [p for p in data.parts if p.variant == variant]
        )
    return section


def survival(parts: list[Parts], case: str) -> float:
    """Return the mean survival over the inputs."""
    return mean(one.cases[case]["survival_fixed"] for one in parts)


def relative_time(parts: list[Parts], case: str, threshold: str = "fixed") -> float:
    """Return the time of a variant, all layers together, over that of the full certificate."""
    whole = sum(one.runs[f"full certificate, {threshold}"]["seconds"] for one in parts)
    return float(sum(one.runs[f"{case}, {threshold}"]["seconds"] for one in parts) / whole)


def _component_blocks(variant: str, parts: list[Parts]) -> list[Block]:
    rows: list[list[str | Value]] = []
    for case in VARIANTS:
        rows.append(
            [
                case,
                percent(survival(parts, case)),
                f"{mean(one.cases[case]['slack'] for one in parts):.2f}",
                f"{relative_time(parts, case):.2f}",
                f"{relative_time(parts, case, 'rising'):.2f}",
                f"{mean(_rounds(one, case) for one in parts):.1f}",
            ]
        )
    columns = ["certificate", "survive", "slack, sd", "time, fixed threshold"]
    columns += ["time, rising threshold", "reductions per row"]
    caption = (
        f"{variant}: means over {len(parts)} layers, {parts[0].rows} rows replayed of each. Less "
        "is better everywhere. Times are relative to the full certificate; slack is the mean of "
        "bound minus score in standard deviations of a row's scores; reductions are how often a "
        "full pool of records was cut down to the K best."
    )
    series = [
        Series(case, n, [(float(one.layer), 100 * _survival(one, case)) for one in parts])
        for n, case in enumerate(VARIANTS)
    ]
    sentence = (
        f"{variant}: percent of the keys that survive the bound, by layer (logarithmic); lower is "
        "better. Curves that lie on each other are parts that do little on this input."
    )
    slug = variant.replace(":", "-")
    blocks: list[Block] = []
    if len(parts) > 1:
        chart = line_chart(
            f"{variant}: survival by layer",
            ("layer", "percent that survive"),
            series,
            marks=(lambda x: f"{x:.0f}", lambda y: f"{y:.3g}"),
            log_x=False,
        )
        blocks.append(Figure(f"components-{slug}", sentence, chart))
    by_layer: list[list[str | Value]] = [
        [f"layer {one.layer}", *_layer_values(one), Value("raw", cell=one.cell)] for one in parts
    ]
    heads = ["", *(f"{case}: survive" for case in VARIANTS)]
    heads += [f"{case}: time" for case in VARIANTS[1:]]
    blocks += [
        Table(caption, columns, rows),
        Table(
            f"{variant}, by layer: survival, and time with the fixed threshold over that of the "
            "full certificate.",
            [*heads, ""],
            by_layer,
            folded=True,
        ),
    ]
    return blocks


def _survival(one: Parts, case: str) -> float:
    return float(one.cases[case]["survival_fixed"])


def _layer_values(one: Parts) -> list[str]:
    shares = [percent(_survival(one, case)) for case in VARIANTS]
    return shares + [f"{relative_time([one], case):.2f}" for case in VARIANTS[1:]]


def _rounds(one: Parts, case: str) -> float:
    """Return reductions per row of the library's call, fixed threshold."""
    run = one.runs[f"{case}, fixed"]
    return float(run["rounds"]) / one.queries
