#!/usr/bin/env python3
"""The picture of README.md: predicted time of a decode step against the number of GPUs, from a file
of `treeattn-bench model --json` with one length and several numbers of ranks; SHAPE is what the
title says of heads and elements. Needs matplotlib.

    model_plot.py MODEL.json OUT.svg SHAPE
"""
import json
import sys

from plot import matplotlib, pyplot, set_logarithmic, write_plainly

STYLE = {"tree": ("tab:green", "o"), "ring pass-Q": ("tab:blue", "^"),
         "ring pass-KV": ("tab:red", "s"), "one device": ("tab:gray", "x")}


def best_times(rows, algorithm):
    """(ranks, microseconds) of the fastest way of an algorithm that fits."""
    points = []
    for row in rows:
        times = [c["microseconds"] for c in row["candidates"]
                 if c["algorithm"] == algorithm and c["fits"]]
        if times:
            points.append((row["ranks"], min(times)))
    return points


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)
    matplotlib.rcParams.update({"svg.hashsalt": "treeattn", "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(figsize=(7, 3.6), facecolor="white")
    for algorithm, (color, marker) in STYLE.items():
        points = best_times(rows, algorithm)
        if points:
            axes.plot(*zip(*points), color=color, marker=marker, markerfacecolor="none",
                      label=algorithm)
    ranks = sorted({row["ranks"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(r) for r in ranks])
    axes.minorticks_off()
    tokens = rows[0]["tokens"]
    set_logarithmic(axes, [time for name in STYLE for _, time in best_times(rows, name)])
    axes.set(xlabel="GPUs", ylabel="time of a step, µs",
             title=f"Predicted, not measured: one layer's decode step on {rows[0]['cluster']}\n"
                   f"{tokens:,} tokens, {sys.argv[3]}")
    axes.title.set_fontsize("medium")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))  # hides no line
    figure.savefig(sys.argv[2], bbox_inches="tight", metadata={"Date": None})
    write_plainly(sys.argv[2])


if __name__ == "__main__":
    main()
