#!/usr/bin/env python3
"""Two JSON files of treeattn-bench side by side: rows of the same work, and the ratio of their
times. `treeattn-bench compare A.json B.json` runs it."""
import collections
import sys

import bench_runs
from bench_fields import BadFile

HEADINGS = {"query_heads": "heads", "algorithm": "algo", "grid_rows": "rows",
            "grid_columns": "cols", "threads": "thr", "kv_heads": "KV"}


def describe(name, run):
    link = f"; {run.link}" if run.link else ""
    print(f"# {name}  {run.machine}; {run.devices}{link}; version"
          f" {run.report.get('version', 'unknown')}; {run.report.get('time', 'time unknown')}")
    print(f"#    {run.command}")


def columns_of(pairs):
    """What defines the work and is not the same in all rows; lengths and ranks always."""
    names = [key for key in pairs[0][0].work
             if key != "pages" or any(a.work[key] for a, _ in pairs)]
    always = ("tokens", "bytes", "ranks", "algorithm", "kind", "pass")
    return [name for name in names
            if name in always or len({str(a.work[name]) for a, _ in pairs}) > 1]


def part(fraction):
    return "-" if fraction is None else f"{fraction:.2f}"


def pairs_of(a, b):
    """Rows of the same work; of rows that are there twice, the first with the first."""
    others = collections.defaultdict(list)
    for row in b.rows:
        others[row.key].append(row)
    return [(row, others[row.key].pop(0)) for row in a.rows if others[row.key]]


def print_table(pairs):
    names = columns_of(pairs)
    titles = [HEADINGS.get(name, name) for name in names]
    cells = [[str(a.work[name]) for name in names] for a, _ in pairs]
    widths = [max(len(title), *(len(row[i]) for row in cells)) for i, title in enumerate(titles)]
    fractions = any(row.row.get("fraction") is not None for pair in pairs for row in pair)
    head = "# " + " ".join(f"{title:>{width}}" for title, width in zip(titles, widths))
    print(head + f" {'A us':>11} {'B us':>11} {'B/A':>6}"
          + (f" {'A frac':>6} {'B frac':>6}" if fractions else "") + f" {'#wrong':>6}")
    for (a, b), row in zip(pairs, cells):
        wrong = (a.row.get("wrong") or 0) + (b.row.get("wrong") or 0)
        line = "  " + " ".join(f"{cell:>{width}}" for cell, width in zip(row, widths))
        line += f" {a.median:>11.1f} {b.median:>11.1f} {b.median / a.median:>6.2f}"
        if fractions:
            line += f" {part(a.row.get('fraction')):>6} {part(b.row.get('fraction')):>6}"
        print(line + f" {wrong:>6}")


def main():
    sys.stdout.reconfigure(errors="backslashreplace")
    if len(sys.argv) != 3:
        sys.exit("usage: treeattn-bench compare A.json B.json")
    try:
        a, b = bench_runs.load(sys.argv[1]), bench_runs.load(sys.argv[2])
    except BadFile as error:
        sys.exit(f"treeattn-bench: {error}")
    describe("A", a)
    describe("B", b)
    if a.kind != b.kind:
        sys.exit(f"treeattn-bench: A is of {a.kind} and B of {b.kind}: their work is not the same")
    pairs = pairs_of(a, b)
    if not pairs:
        why = "; ".join(bench_runs.differing_options(a, b)) or "no row of one is in the other"
        sys.exit(f"treeattn-bench: the files have no row of the same work: {why}")
    print_table(pairs)
    alone = len(a.rows) + len(b.rows) - 2 * len(pairs)
    if alone:
        print(f"# {alone} rows are in one of the files alone")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
