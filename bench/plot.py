#!/usr/bin/env python3
"""Plots of one JSON file of `treeattn-bench decode`: time against tokens, speed-up over the other
algorithms against ranks, peak memory. Writes PNG and SVG. Needs matplotlib (python3-matplotlib).

    plot.py FILE.json DIRECTORY
"""
import collections
import json
import math
import os
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot.py needs matplotlib: apt install python3-matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

STYLE = {"tree": ("tab:green", "o"), "ring-kv": ("tab:red", "s"), "ring-q": ("tab:blue", "^")}


def lines_of(rows, name, x, y):
    """Points (x, y) of one algorithm, sorted; only those that are finite."""
    points = sorted((x(r), y(r)) for r in rows if r["algorithm"] == name)
    return [p for p in points if all(math.isfinite(v) for v in p)]


def draw(axes, rows, x, y):
    for name, (color, marker) in STYLE.items():
        points = lines_of(rows, name, x, y)
        if points:
            axes.plot(*zip(*points), color=color, marker=marker, label=name)
    axes.grid(True, alpha=0.3)
    axes.legend()


def save(figure, directory, name):
    for kind in ("png", "svg"):
        figure.savefig(os.path.join(directory, f"{name}.{kind}"), dpi=100, bbox_inches="tight")
    pyplot.close(figure)
    path = os.path.join(directory, f"{name}.svg")
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip() for line in file]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def plot_time(rows, directory):
    ranks = max(r["ranks"] for r in rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, [r for r in rows if r["ranks"] == ranks], lambda r: r["tokens"],
         lambda r: r["step_us"]["median"] / 1000)
    axes.set(xscale="log", yscale="log", xlabel="tokens of the sequence",
             ylabel="median time of a step, ms", title=f"Decode on {ranks} ranks")
    axes.set_xscale("log", base=2)
    save(figure, directory, "time")


def plot_speedup(rows, directory):
    longest = collections.defaultdict(int)
    for r in rows:
        longest[r["ranks"]] = max(longest[r["ranks"]], r["tokens"])
    chosen = [r for r in rows if r["tokens"] == longest[r["ranks"]]]
    tree = {r["ranks"]: r["step_us"]["median"] for r in chosen if r["algorithm"] == "tree"}
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, [r for r in chosen if r["ranks"] in tree and r["algorithm"] != "tree"],
         lambda r: r["ranks"], lambda r: r["step_us"]["median"] / tree[r["ranks"]])
    axes.axhline(1, color="tab:green")
    axes.set(yscale="log", xlabel="ranks", ylabel="time / time of tree",
             title="How much faster tree is, at the longest sequence")
    save(figure, directory, "speedup")


def plot_memory(rows, directory):
    ranks = max(r["ranks"] for r in rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, [r for r in rows if r["ranks"] == ranks], lambda r: r["tokens"],
         lambda r: r["peak_bytes_per_rank"] / 1e6)
    axes.set(xlabel="tokens of the sequence", ylabel="peak device memory of a rank, MB",
             title=f"Memory on {ranks} ranks")
    axes.set_ylim(bottom=0)
    save(figure, directory, "memory")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    matplotlib.rcParams["svg.hashsalt"] = "treeattn"
    os.makedirs(sys.argv[2], exist_ok=True)
    plot_time(rows, sys.argv[2])
    plot_speedup(rows, sys.argv[2])
    plot_memory(rows, sys.argv[2])


if __name__ == "__main__":
    main()
