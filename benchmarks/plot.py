"""Bars: the reached share of each goal, the worst on top. A bar that ends left of the line misses its goal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.report import Line, number

NAMES, BARS, MARGIN, HEIGHT = 300, 520, 20, 20
LOWEST, HIGHEST = 1 / 4, 16  # longer bars end at the edge, with their figure beside them
COLOURS = {"as aimed": "#2b8a5f", "reaches": "#6fa8dc", "**misses**": "#c8473c", "**no peer**": "#999999"}
STYLE = "text{font:12px sans-serif;fill:#222} .small{font-size:10px;fill:#555} .title{font-size:15px}"


def svg(lines: Sequence[Line], told: Mapping[str, Any]) -> str:
    top = 62
    under = top + len(lines) * HEIGHT
    foot = [line for part in _origin(told) for line in wrap(part, 150)]
    height = under + 40 + 13 * len(foot)
    width = MARGIN * 2 + NAMES + BARS + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="title" x="{MARGIN}" y="24">Daybreak: reached, as a multiple of what must be</text>',
        *_key(24),
        *_scale(top, under),
        *(_bar(line, top + n * HEIGHT) for n, line in enumerate(lines)),
        *(
            f'<text class="small" x="{MARGIN}" y="{under + 36 + 13 * n}">{escape(line)}</text>'
            for n, line in enumerate(foot)
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def at(distance: float) -> float:
    """Where a multiple stands: each step to the right is twice as much."""
    held = min(max(distance, LOWEST), HIGHEST)
    return MARGIN + NAMES + BARS * math.log(held / LOWEST) / math.log(HIGHEST / LOWEST)


def _key(y: float) -> list[str]:
    return [
        f'<rect x="{MARGIN + NAMES + 170 + n * 110}" y="{y - 10}" width="12" height="12" fill="{COLOURS[verdict]}"/>'
        f'<text x="{MARGIN + NAMES + 187 + n * 110}" y="{y}">{verdict.strip("*")}</text>'
        for n, verdict in enumerate(("**misses**", "reaches", "as aimed"))
    ]


def _scale(top: float, under: float) -> list[str]:
    steps = [2**n for n in range(round(math.log2(LOWEST)), round(math.log2(HIGHEST)) + 1)]
    drawn = []
    for step in steps:
        line = 'stroke="#222" stroke-width="1.5"' if step == 1 else 'stroke="#ddd"'
        drawn += [
            f'<line x1="{at(step):.1f}" x2="{at(step):.1f}" y1="{top - 6}" y2="{under}" {line}/>',
            f'<text class="small" x="{at(step):.1f}" y="{top - 10}" text-anchor="middle">{step:g} x</text>',
        ]
    return drawn


def _bar(line: Line, y: float) -> str:
    goal = line.goal
    name = f'<text x="{MARGIN + NAMES - 8}" y="{y + 13}" text-anchor="end">{escape(line.name)}</text>'
    if line.reached is None:
        return f'{name}<text class="small" x="{at(1) + 4:.1f}" y="{y + 13}">no peer</text>'
    begin, end = sorted((at(1), at(line.distance)))
    fill = COLOURS[line.verdict]
    bar = f'<rect x="{begin:.1f}" y="{y + 3}" width="{max(1.0, end - begin):.1f}" height="{HEIGHT - 6}" fill="{fill}"/>'
    said = f"{number(line.reached.median)} {goal.unit}, must {'at most ' if goal.at_most else ''}{goal.must:,.3g}"
    # Beside the bar, on the side where there is room.
    anchor, x = ("end", end - 4) if line.distance > 7 else ("start", max(end, at(1)) + 4)
    light = ' style="fill:#fff"' if anchor == "end" else ""
    there = f'x="{x:.1f}" y="{y + 13}" text-anchor="{anchor}"'
    return f'{name}{bar}<text class="small" {there}{light}>{escape(said)}</text>'


def _origin(told: Mapping[str, Any]) -> list[str]:
    where = told["machine"]
    packages = ", ".join(f"{package} {number}" for package, number in told["versions"].items())
    machine = f"{where['cores']} x {where['cpu']}, {where['memory_gb']} GB, {where['system']}, {where['file_system']}"
    return [
        f"{told['date']}, {told['command']}: {told['form']} form, {told['repeat']} rounds, medians",
        f"{machine}, Python {where['python']}",
        packages,
    ]
