# SPDX-License-Identifier: Apache-2.0
"""What the paper states, beside what was measured here.

The paper's figures are from *DoSA: Dots Sparse Attention*, arXiv 2610.13990: GLM-5.2 and
DeepSeek-V3.2 on a GPU that it does not name, against SGLang and LiteTopK.
"""

from __future__ import annotations

from dosa.report.blocks import Section, Table, Text
from dosa.report.data import Data, Entry, keys_text
from dosa.report.maps import faster_cells
from dosa.report.others import MODEL, decode_ratios, model_ratio
from dosa.report.parts import ablation_means, relative_time, survival, variants
from dosa.report.words import megabytes, percent, span

_NOT_HERE = "not measured here"


def paper(data: Data) -> Section:
    """Put the paper's figures beside ours."""
    rows = [*_speed(data), *_ablation(data), *_components(data), *_maps(data), *_other(data)]
    caption = (
        "The paper's figures are another machine's (a GPU that is not named), on activations of "
        "real models that are not public, against SGLang (stores every score, as base does) and "
        "LiteTopK (fuses scoring and selection, as full does). Ours are this machine, on the "
        "inputs named above. "
        "Nothing in the right column may be read as a reproduction of the left one; what can be "
        "compared is the direction and the order of magnitude."
    )
    columns = ["quantity", "paper", "here"]
    return Section(
        "paper",
        "9. The paper's figures beside ours",
        [Text(caption), Table("", columns, rows, prose=frozenset({1, 2}))],
    )


def _ratios(entries: list[Entry], over: str) -> list[float]:
    found = [entry.speedup("auto", over) for entry in entries]
    return [one.middle for one in found if one is not None]


def _speed(data: Data) -> list[list[str]]:
    entries = data.entries("grid")
    count = f" ({len(entries)} configurations)" if entries else ""
    peers = dict.fromkeys(peer for entry in entries for peer in entry.peers)
    return [
        *(
            [
                "speed over today's kernels",
                "1.12-2.74 over SGLang, 60 configurations",
                f"{span(_ratios(entries, peer))} over {peer}{count}",
            ]
            for peer in peers
        ),
        [
            "speed over storing every score",
            "1.12-2.74 over SGLang, 60 configurations",
            f"{span(_ratios(entries, 'base'))} over base{count}",
        ],
        [
            "speed over fused scoring and selection",
            "1.17-1.69 over LiteTopK, 60 configurations",
            f"{span(_ratios(entries, 'full'))} over full{count}",
        ],
    ]


def _ablation(data: Data) -> list[list[str]]:
    entries = data.entries("ablation")
    published = [("screening alone", "screen", "37.4%"), ("sparse writing alone", "full", "23.4%")]
    published.append(("both", "dosa", "47.3%"))
    rows = []
    for name, mode, stated in published:
        ours = []
        for variant in variants(entries):
            means = ablation_means(entries, variant)
            if mode in means:
                ours.append(f"{100 * (1 - means[mode] / means['base']):.1f}% ({variant})")
        where = "16K queries x 896K keys, 21 layers"
        rows.append([f"time saved, {name}", f"{stated} ({where})", _listed(ours)])
    return rows


def _components(data: Data) -> list[list[str]]:
    groups = {
        variant: [one for one in data.parts if one.variant == variant]
        for variant in dict.fromkeys(one.variant for one in data.parts)
    }

    def shares(case: str) -> str:
        return _listed([f"{percent(survival(p, case))} ({name})" for name, p in groups.items()])

    def slower(case: str) -> str:
        return _listed([f"{relative_time(p, case):.2f} ({name})" for name, p in groups.items()])

    second = {name: [one for one in p if one.layer == 2] for name, p in groups.items()}
    at_two = [
        f"{relative_time(p, 'aggregate all'):.2f} ({name})" for name, p in second.items() if p
    ]
    over = [
        f"{percent(sum(one.over_retained for one in p) / len(p))} ({name})"
        for name, p in groups.items()
    ]
    return [
        ["keys that survive, full certificate", "2.65%", shares("full certificate")],
        ["keys that survive, no negative aggregate", "95.06%", shares("no aggregate")],
        ["keys that survive, all negative heads aggregated", "4.06%", shares("aggregate all")],
        ["time without negative aggregate, times", "9.51", slower("no aggregate")],
        ["time with all aggregated, times", "1.12", slower("aggregate all")],
        ["the same at layer 2, times", "3.41", _listed(at_two)],
        ["rows that need projection", "0.42%", _listed(over)],
    ]


def _maps(data: Data) -> list[list[str]]:
    entries = data.entries("map")
    rows = []
    published = (("base", "SGLang", 251, "3.74"), ("full", "LiteTopK", 250, "2.08"))
    for over, peer, faster, most in published:
        ours = "not measured"
        if entries:
            count, total, largest = faster_cells(entries, over)
            ours = f"{count} of {total} over {over}, largest {largest:.2f}"
        rows.append(
            ["layer x input cells that are faster", f"{faster} of 252 over {peer}, largest {most}",
             ours]
        )  # fmt: skip
    slow = [1 / v - 1 for over in ("base", "full") for v in _ratios(entries, over) if v < 1]
    ours = (
        f"{100 * min(slow):.1f}-{100 * max(slow):.1f}% ({len(slow)} cells)"
        if slow
        else "no such cell"
    )
    rows.append(["how much slower the others are", "0.7-9.0%", ours if entries else "not measured"])
    return rows


def _other(data: Data) -> list[list[str]]:
    sizes = [
        (entry.modes["auto"].fields["workspace_bytes"], entry.keys)
        for entry in data.entries("memory")
        if "auto" in entry.modes
    ]
    most = "not measured"
    if sizes:
        size, longest = max(size for size, _ in sizes), max(keys for _, keys in sizes)
        most = f"at most {megabytes(size)} of workspace (auto, up to {keys_text(longest)} keys)"
    return [
        ["workspace near 1M keys", "9.94 GiB more, so that no candidate is lost", most],
        [
            "time to first token at 1M over SGLang",
            "1.86 (GLM-5.2), 1.94 (DeepSeek-V3.2)",
            _models(data),
        ],
        ["time to first token at 1M over LiteTopK", "1.26, 1.50", _NOT_HERE],
        ["indexer's share of a prefill", "23.6% at 128K, 73.0% at 1M; 90.8% (V3.2)", _NOT_HERE],
        ["decode at 256K, 512K, 1M", "1.06, 1.11, 1.26", _decode(data)],
    ]


def _decode(data: Data) -> str:
    found = [decode_ratios(data, keys << 10) for keys in (256, 512, 1024)]
    if not all(found):
        return _NOT_HERE
    return ", ".join(span(one) for one in found) + " over the peer (one request, by heads)"


def _models(data: Data) -> str:
    kinds = dict.fromkeys(str(one["kind"]) for one in data.outside(MODEL) if "kind" in one)
    found = [text for kind in kinds if (text := model_ratio(data, kind))]
    return ", ".join(found) if found else _NOT_HERE


def _listed(parts: list[str]) -> str:
    return ", ".join(parts) if parts else "not measured"
