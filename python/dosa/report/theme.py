# SPDX-License-Identifier: Apache-2.0
"""Colours and type, in light and in dark; the page and every figure bring them along."""

_LIGHT = {
    "ink": "#1b1f24",
    "paper": "#ffffff",
    "soft": "#57606a",
    "faint": "#d8dee4",
    "panel": "#f6f8fa",
    "link": "#0550ae",
    "loss": "#953800",
    "s0": "#6e7781",
    "s1": "#bc4c00",
    "s2": "#8250df",
    "s3": "#0969da",
    "s4": "#1a7f37",
    "s5": "#bf3989",
    "s6": "#7a5c00",
    "s7": "#0f6f78",
}
_DARK = {
    "ink": "#e6edf3",
    "paper": "#0d1117",
    "soft": "#9da7b1",
    "faint": "#30363d",
    "panel": "#161b22",
    "link": "#79c0ff",
    "loss": "#ffa657",
    "s0": "#9198a1",
    "s1": "#f0883e",
    "s2": "#bc8cff",
    "s3": "#58a6ff",
    "s4": "#3fb950",
    "s5": "#f778ba",
    "s6": "#d4b106",
    "s7": "#56d4dd",
}


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


def _series() -> str:
    return "".join(
        f".chart .f{n}{{fill:var(--s{n})}}"
        f".chart .k{n}{{stroke:var(--s{n});stroke-width:1.6}}"
        f".chart .l{n}{{stroke:var(--s{n});stroke-width:2;fill:none}}\n"
        for n in range(8)
    )


COLOURS = (
    f":root{{color-scheme:light dark;{_variables(_LIGHT)}}}\n"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}\n"
)
CHART = (
    ".chart text{font:12px system-ui,sans-serif;fill:var(--ink)}\n"
    ".chart .axis{fill:var(--soft)}.chart .head{font-weight:600}\n"
    ".chart .grid{stroke:var(--faint);stroke-width:1}\n"
    ".chart .one{stroke:var(--ink);stroke-width:1.4}\n" + _series()
)
PAGE = """body{margin:0 auto;max-width:76rem;padding:1.2rem;font:16px/1.5 system-ui,sans-serif;
color:var(--ink);background:var(--paper)}
h1{font-size:1.7rem;line-height:1.2;margin:.6rem 0}
h2{font-size:1.25rem;margin:2.4rem 0 .5rem;padding-top:.6rem;border-top:1px solid var(--faint)}
p,li,dd{max-width:46rem}
a{color:var(--link)}
code{font:.88em ui-monospace,monospace;overflow-wrap:anywhere}
dl{background:var(--panel);padding:.8rem 1.1rem;border-radius:6px}
dt{font-weight:600;margin-top:.5rem}
dd{margin:0 0 .3rem 0}
.losses{border-left:4px solid var(--loss);padding:.1rem 1rem;background:var(--panel)}
.problems{border:2px solid var(--loss);padding:.1rem 1rem}
.wide{overflow-x:auto;margin:.7rem 0}
figure{margin:1rem 0}
figcaption{max-width:46rem;margin-bottom:.3rem}
.chart{display:block;width:100%;min-width:38rem;max-width:52rem;height:auto}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
.caption{font-size:.9rem;margin:1rem 0 .2rem;color:var(--soft)}
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid var(--faint);
white-space:nowrap;vertical-align:top}
th{font-weight:600;vertical-align:bottom}
th:first-child,td:first-child,.left{text-align:left}
td.text{white-space:normal;text-align:left;min-width:14rem}
td.loss{color:var(--loss);font-weight:600}
tbody tr:hover{background:var(--panel)}
summary{cursor:pointer}
nav ul{columns:2;padding-left:1.2rem}
@media (max-width:36rem){body{padding:.7rem}nav ul{columns:1}}
@media print{.wide{overflow:visible}}
"""


def standalone(svg: str) -> str:
    """Return a figure that has its colours with it, as a file of its own needs them."""
    head, rest = svg.split("\n", 1)
    background = ".chart{background:var(--paper)}\n"
    return f"{head}\n<style>\n{COLOURS}{CHART}{background}</style>\n{rest}"
