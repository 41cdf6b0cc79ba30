#!/usr/bin/env python3
"""Plots of JSON files of `treeattn-bench decode`: time against tokens (or against ranks, where each
number of ranks has one length), speed-up over the other algorithms against ranks, peak memory, and
what the model predicted over what was measured, if the files have predictions (--cluster). Writes
PNG and SVG, their names after PREFIX. Needs matplotlib (python3-matplotlib).

    plot.py [--prefix PREFIX] FILE.json... DIRECTORY
"""
import collections
import json
import math
import os
import sys

try:
    import matplotlib
except ImportError:
    # The python3 of a user's own may lack what the system's has.
    SYSTEM = "/usr/bin/python3"
    if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM) and os.access(SYSTEM, os.X_OK):
        os.execv(SYSTEM, [SYSTEM] + sys.argv)
    sys.exit("plot.py needs matplotlib: apt install python3-matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

STYLE = {"tree": ("tab:green", "o"), "ring-kv": ("tab:red", "s"), "ring-q": ("tab:blue", "^"),
         "auto": ("tab:gray", "x")}


def measured(row):
    """Milliseconds of a step."""
    return row["step_us"]["median"] / 1000


def predicted(row):
    return row["predicted"]["step_us"] / 1000


def lines_of(rows, name, x, y):
    """Points (x, y) of one algorithm, sorted; only those that are finite."""
    points = sorted((x(r), y(r)) for r in rows if r["algorithm"] == name)
    return [p for p in points if all(math.isfinite(v) for v in p)]


def draw(axes, rows, x, y, dashed=False, label="{}"):
    for name, (color, marker) in STYLE.items():
        points = lines_of(rows, name, x, y)
        if points:
            axes.plot(*zip(*points), color=color, marker=None if dashed else marker,
                      linestyle="--" if dashed else "-", label=label.format(name))
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small")


def set_steps(axes, rows, x):
    """A logarithmic axis with a mark at each value that was measured."""
    values = sorted({x(r) for r in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{v // 1024}k" if v % 1024 == 0 else str(v) for v in values])
    axes.minorticks_off()


def save(figure, where, name):
    directory, prefix = where
    for kind in ("png", "svg"):
        path = os.path.join(directory, f"{prefix}{name}.{kind}")
        figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Date": None} if kind == "svg"
                       else None)
    pyplot.close(figure)
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip() for line in file]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def choose_axis(rows):
    """What time is drawn against: (rows, value of a row, its name, a title)."""
    lengths = collections.defaultdict(set)
    for r in rows:
        lengths[r["ranks"]].add(r["tokens"])
    if len(lengths) > 1 and all(len(tokens) == 1 for tokens in lengths.values()):
        each = {r["tokens"] // r["ranks"] for r in rows}
        title = f"{min(each) // 1024}k tokens on each rank" if len(each) == 1 else "decode"
        return rows, lambda r: r["ranks"], "ranks", title
    ranks = max(lengths)
    return ([r for r in rows if r["ranks"] == ranks], lambda r: r["tokens"],
            "tokens of the sequence", f"{ranks} ranks")


def plot_time(rows, where):
    chosen, x, name, title = choose_axis(rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, chosen, x, measured)
    axes.set(yscale="log", xlabel=name, ylabel="median time of a step, ms", title=title)
    set_steps(axes, chosen, x)
    save(figure, where, "time")


def plot_speedup(rows, where):
    longest = collections.defaultdict(int)
    for r in rows:
        longest[r["ranks"]] = max(longest[r["ranks"]], r["tokens"])
    chosen = [r for r in rows if r["tokens"] == longest[r["ranks"]] and r["ranks"] > 1]
    tree = {r["ranks"]: measured(r) for r in chosen if r["algorithm"] == "tree"}
    rings = [r for r in chosen if r["ranks"] in tree and r["algorithm"] != "tree"]
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, rings, lambda r: r["ranks"], lambda r: measured(r) / tree[r["ranks"]])
    axes.axhline(1, color="tab:green")
    axes.set(yscale="log", xlabel="ranks", ylabel="time / time of tree",
             title="How much faster tree is, at the longest sequence")
    set_steps(axes, rings, lambda r: r["ranks"])
    save(figure, where, "speedup")


def plot_memory(rows, where):
    chosen, x, name, title = choose_axis(rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, chosen, x, lambda r: r["peak_bytes_per_rank"] / 1e6)
    axes.set(xlabel=name, ylabel="peak device memory of a rank, MB", title=title)
    set_steps(axes, chosen, x)
    axes.set_ylim(bottom=0)
    save(figure, where, "memory")


def plot_prediction(rows, where):
    chosen, x, name, title = choose_axis([r for r in rows if "predicted" in r])
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, chosen, x, measured, label="{} measured")
    draw(axes, chosen, x, predicted, dashed=True, label="{} predicted")
    axes.set(yscale="log", xlabel=name, ylabel="time of a step, ms", title=title)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    set_steps(axes, chosen, x)
    save(figure, where, "prediction")


def main():
    arguments, prefix = sys.argv[1:], ""
    if len(arguments) > 2 and arguments[0] == "--prefix":
        prefix, arguments = arguments[1], arguments[2:]
    if len(arguments) < 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    rows = []
    for path in arguments[:-1]:
        with open(path, encoding="utf-8") as file:
            rows += json.load(file)["rows"]
    matplotlib.rcParams.update({"svg.hashsalt": "treeattn", "svg.fonttype": "none"})
    os.makedirs(arguments[-1], exist_ok=True)
    where = (arguments[-1], prefix)
    plot_time(rows, where)
    plot_speedup(rows, where)
    plot_memory(rows, where)
    if any("predicted" in r for r in rows):
        plot_prediction(rows, where)


if __name__ == "__main__":
    main()
