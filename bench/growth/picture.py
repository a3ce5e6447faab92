"""Curves as pictures. Both axes are logarithmic: a power is a line, and its slope the exponent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.growth.curve import Curve

SIZE_INCHES: Final = (7.2, 4.0)
COLOURS: Final = ("#0b6e99", "#c2571a", "#4a7c2a", "#8a3d8f", "#7a5c00", "#b0233c", "#44546a")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")


def draw(title: str, curves: Sequence[Curve], path: Path) -> None:
    """One picture of the curves of one kind of work, as SVG."""
    # The same input gives the same file: no date, and no random names.
    with mpl.rc_context({"svg.hashsalt": title, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log")
        axes.set_yscale("log")
        for curve, colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
            works = [point.work for point in curve.points]
            costs = [max(point.cost, 1e-3) for point in curve.points]
            axes.plot(
                works, costs, color=colour, marker=marker, label=f"{curve.title}, {curve.unit}"
            )
            if curve.goal is not None and works and works[-1] == curve.goal_at:
                axes.plot([curve.goal_at], [curve.goal], color=colour, marker="_", markersize=16)
        axes.set_xlabel(curves[0].work)
        axes.set_title(title)
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
