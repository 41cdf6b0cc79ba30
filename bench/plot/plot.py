#!/usr/bin/env python3
"""Plots of JSON files of `treeattn-bench decode` and `llama`: time against tokens (or against
ranks, where each number of ranks has one length), speed-up over the other algorithms against ranks,
peak memory, and what the model predicted over what was measured, if the files have predictions
(--cluster). Of files of `treeattn-bench exchange`, each by itself: time against bytes, a line for
each kind, and the same over the first kind's time. Writes PNG and SVG, their names after PREFIX.
Needs matplotlib (python3-matplotlib).

    plot.py [--prefix PREFIX] [--note TEXT] FILE.json... DIRECTORY

TEXT goes into the titles, behind the machine and the shape: what the files do not know.
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
from matplotlib import pyplot, ticker  # noqa: E402

STYLE = {"tree": ("tab:green", "o"), "ring-kv": ("tab:red", "s"), "ring-q": ("tab:blue", "^"),
         "repro": ("tab:purple", "D"), "auto": ("tab:gray", "x"),
         "expanded": ("tab:orange", "v")}

# Of exchanges, in the order in which they are drawn.
KINDS = {"doubling": ("tab:green", "o"), "binomial": ("tab:blue", "^"),
         "scatter": ("tab:orange", "s"), "two-level": ("tab:purple", "D"),
         "multi-level": ("tab:pink", "p"), "all-gather": ("tab:cyan", "v"),
         "all-reduce": ("tab:brown", "<"), "direct": ("tab:red", "h"), "bare": ("black", "x"),
         "MPI_Allreduce": ("tab:gray", ">"), "MPI_Allgather": ("tab:olive", "8"),
         "ta_all_reduce": ("darkblue", "+"), "ta_all_gather": ("teal", "*"),
         "ncclAllReduce": ("goldenrod", "1")}


def program_of(report):
    return (report.get("program", report.get("command", "")).split() or [""])[-1]


def describe(report):
    """The machine and the shape, for titles."""
    machine, options, rows = report["machine"], report["options"], report["rows"]
    names = sorted({p.get("product") for p in report.get("launch", {}).get("places", [])
                    if p.get("product")})
    link = options.get("link", {}).get("what", "")
    place = ", ".join(names) or f"{machine['cpu']}, {machine['cpus']} CPUs"
    if program_of(report) == "exchange":
        where = {"all": "all ranks", "root": "one rank", "heads": "all ranks, scattered by heads"}
        output = where.get(options["placement"], options["placement"])
        return (f"{place}; heads × {options['head_dim']}, output on {output}"
                + (f"\nranks as in {options['cluster']}" if "cluster" in options else ""))
    if program_of(report) == "llama":
        model = report["model"]
        return (f"{place}; {model['name']}, weights {options['weights']}, cache "
                f"{options['kv_dtype']}" + (f"\n{link}" if link else ""))
    shapes = sorted({(r["dtype"], r["query_heads"], r["kv_heads"]) for r in rows})
    shape = ", ".join(f"{d} {q}/{kv} heads" for d, q, kv in shapes[:3])
    return (f"{place}; {shape} × {options['k_dim']}, batch "
            f"{options['batch']}" + (f"\n{link}" if link else ""))


def measured(row):
    """Milliseconds of a step."""
    return row["step_us"]["median"] / 1000


def peak_bytes(row):
    """Of a rank."""
    if "peak_bytes_per_rank" in row:
        return row["peak_bytes_per_rank"]
    return sum(row[f"{what}_bytes_per_rank"] for what in ("weight", "kv", "other"))


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
            # Open marks of different sizes and lines of different widths: where they lie on each
            # other, all of them are seen.
            order = list(STYLE).index(name)
            size, width = 4 + 2.5 * order, max(1.0, 4 - 1.25 * order)
            axes.plot(*zip(*points), color=color, marker=None if dashed else marker,
                      markersize=size, markerfacecolor="none", linewidth=width, alpha=0.85,
                      linestyle="--" if dashed else "-", label=label.format(name))
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))  # hides no line


def set_steps(axes, rows, x):
    """A logarithmic axis with a mark at each value that was measured."""
    values = sorted({x(r) for r in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{v // 1024}k" if v % 1024 == 0 else str(v) for v in values])
    axes.minorticks_off()


def set_logarithmic(axes, values):
    """A logarithmic axis of times or ratios in plain numbers: 1, 2 and 5 of each power of ten, or
    the powers alone where these are many."""
    values = [v for v in values if v > 0]
    steps = (1, 2, 5) if values and max(values) / min(values) < 1000 else (1,)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def write_plainly(path):
    """No spaces at the ends of lines, whoever wrote the file."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip() for line in file]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def save(figure, where, name):
    directory, prefix, subtitle = where
    axes = figure.axes[0]
    axes.set_title(f"{axes.get_title()}\n{subtitle}", fontsize="small")
    for kind in ("png", "svg"):
        path = os.path.join(directory, f"{prefix}{name}.{kind}")
        figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Date": None} if kind == "svg"
                       else None)
    pyplot.close(figure)
    write_plainly(path)


def choose_axis(rows):
    """What time is drawn against: (rows, value of a row, its name, a title)."""
    lengths = collections.defaultdict(set)
    for r in rows:
        lengths[r["ranks"]].add(r["tokens"])
    if len(lengths) > 1 and all(len(tokens) == 1 for tokens in lengths.values()):
        each = {r["tokens"] // r["ranks"] for r in rows}
        all_tokens = {r["tokens"] for r in rows}
        title = (f"{min(each) // 1024}k tokens on each rank" if len(each) == 1 else
                 f"decode, {min(all_tokens):,} tokens on all ranks together"
                 if len(all_tokens) == 1 else "decode")
        return rows, lambda r: r["ranks"], "ranks", title
    ranks = max(lengths)
    return ([r for r in rows if r["ranks"] == ranks], lambda r: r["tokens"],
            "tokens of the sequence", f"{ranks} ranks")


def plot_time(rows, where):
    chosen, x, name, title = choose_axis(rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, chosen, x, measured)
    set_logarithmic(axes, [measured(r) for r in chosen])
    axes.set(xlabel=name, ylabel="median time of a step, ms", title=title)
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
    set_logarithmic(axes, [1] + [measured(r) / tree[r["ranks"]] for r in rings])
    lengths = sorted(set(longest.values()))
    at = f"at {lengths[0]:,} tokens" if len(lengths) == 1 else "at the longest sequence"
    axes.set(xlabel="ranks", ylabel="time / time of tree",
             title=f"Time over tree's, {at}: above 1 tree is faster, below 1 slower")
    set_steps(axes, rings, lambda r: r["ranks"])
    save(figure, where, "speedup")


def plot_memory(rows, where):
    chosen, x, name, title = choose_axis(rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, chosen, x, lambda r: peak_bytes(r) / 1e6)
    axes.set(xlabel=name, ylabel="peak device memory of a rank, MB", title=title)
    set_steps(axes, chosen, x)
    axes.set_ylim(bottom=0)
    save(figure, where, "memory")


def plot_prediction(rows, where):
    chosen, x, name, title = choose_axis([r for r in rows if "predicted" in r])
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes, chosen, x, measured, label="{} measured")
    draw(axes, chosen, x, predicted, dashed=True, label="{} predicted")
    set_logarithmic(axes, [of(r) for r in chosen for of in (measured, predicted)])
    axes.set(xlabel=name, ylabel="time of a step, ms", title=title)
    set_steps(axes, chosen, x)
    save(figure, where, "prediction")


def ranks_of(report):
    """Of exchanges, for people: "4 threads"."""
    return f"{report['rows'][0]['ranks']} {report['launch']['ranks_are']}"


def draw_kinds(axes, rows, y):
    """Wide lines first and thin ones over them, open marks that grow: no line hides another."""
    found = {r["kind"] for r in rows}
    names = [n for n in KINDS if n in found] + sorted(found - set(KINDS))
    for order, name in enumerate(names):
        points = sorted((r["bytes"], y(r)) for r in rows if r["kind"] == name)
        color, marker = KINDS.get(name, ("gold", "d"))
        part = order / max(1, len(names) - 1)
        axes.plot(*zip(*points), color=color, marker=marker, markersize=4 + 9 * part,
                  markerfacecolor="none", linewidth=6 - 5 * part, alpha=0.85, label=name)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    values = sorted({r["bytes"] for r in rows})
    set_logarithmic(axes, [y(r) for r in rows])
    axes.set(xscale="log", xlabel="bytes of a partial")
    axes.set_xticks(values, [f"{v / 1024:.3g} KB" for v in values])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def plot_exchange(report, where):
    """Of one file: two plots, whose names say how many ranks there were, and of what kind."""
    rows = [r for r in report["rows"] if r["median_us"]]
    if not rows:
        return
    ranks = ranks_of(report)
    first = {r["bytes"]: r for r in reversed(rows)}
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw_kinds(axes, rows, lambda r: r["median_us"])
    axes.set(ylabel="median time of an exchange, µs", title=f"exchanges of {ranks}")
    save(figure, where, f"exchange-{ranks.replace(' ', '-')}")
    figure, axes = pyplot.subplots(figsize=(6, 4))
    draw_kinds(axes, rows, lambda r: r["median_us"] / first[r["bytes"]]["median_us"])
    axes.set(ylabel=f"time / time of {rows[0]['kind']}", title=f"exchanges of {ranks}")
    save(figure, where, f"exchange-ratio-{ranks.replace(' ', '-')}")


def plot_steps(rows, where):
    plot_time(rows, where)
    plot_speedup(rows, where)
    plot_memory(rows, where)
    if any("predicted" in r for r in rows):
        plot_prediction(rows, where)


def read_report(path):
    """Of a file that --json wrote, with all that the plots need."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        describe(report)
        for r in report["rows"]:
            if program_of(report) == "exchange":
                r["kind"], r["bytes"], r["ranks"], r["median_us"], report["launch"]["ranks_are"]
            else:
                measured(r), peak_bytes(r), r["tokens"], r["ranks"], r["algorithm"]
    except OSError as error:
        sys.exit(f"plot.py: {path} cannot be read: {error.strerror}")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"plot.py: {path} is not a file of treeattn-bench decode, llama or exchange "
                 f"--json: {type(error).__name__} {error}")
    return report


def main():
    arguments, given = sys.argv[1:], {"--prefix": "", "--note": ""}
    while len(arguments) > 2 and arguments[0] in given:
        given[arguments[0]], arguments = arguments[1], arguments[2:]
    if len(arguments) < 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    reports = [read_report(path) for path in arguments[:-1]]
    matplotlib.rcParams.update({"svg.hashsalt": "treeattn", "svg.fonttype": "none"})
    os.makedirs(arguments[-1], exist_ok=True)
    note = [given["--note"]] * bool(given["--note"])

    def where_of(some):
        subtitles = [*dict.fromkeys(map(describe, some))] + note
        return arguments[-1], given["--prefix"], "\n".join(subtitles)

    exchanges = [r for r in reports if program_of(r) == "exchange" and r["rows"]]
    steps = [r for r in reports if program_of(r) != "exchange"]
    drawn = [ranks_of(r) for r in exchanges]
    if len(set(drawn)) < len(drawn):
        sys.exit("plot.py: two files of exchanges have as many ranks of one kind: plot them one by "
                 "one, with a --prefix each")
    if steps:
        plot_steps([row for r in steps for row in r["rows"]], where_of(steps))
    for report in exchanges:
        plot_exchange(report, where_of([report]))


if __name__ == "__main__":
    main()
