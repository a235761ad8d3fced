"""Draw curves as SVG, each with the band in which it counts as flat."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.scale.points import Curve

_WIDTH, _HEIGHT = 4.8, 3.0
_FLAT = 0.1
"""A cost within 10 % of the median counts as flat."""
# Both can be read on a light page and on a dark one.
_GREY, _BLUE = "#7d8590", "#3b82c4"


def draw(curve: Curve, file: Path) -> None:
    """Write a curve to a file, the same bytes for the same points."""
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "dovecote",
            "font.size": 9,
            "savefig.transparent": True,
            "text.color": _GREY,
            "axes.labelcolor": _GREY,
            "axes.edgecolor": _GREY,
            "xtick.color": _GREY,
            "ytick.color": _GREY,
        }
    )
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    xs = [max(each.size, 1) for each in curve.points]
    ys = [each.cost_us for each in curve.points]
    middle = sorted(ys)[len(ys) // 2]
    axes.axhspan(middle * (1 - _FLAT), middle * (1 + _FLAT), color=_GREY, alpha=0.2, lw=0)
    axes.plot(xs, ys, marker="o", color=_BLUE, lw=1.6, ms=4)
    axes.set_xscale("log")
    axes.set_ylim(0, max(ys) * 1.25)
    axes.set_xlabel(curve.over)
    axes.set_ylabel("µs an event")
    axes.set_title(f"{curve.name}: {curve.cost}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
