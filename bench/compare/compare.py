#!/usr/bin/env python3
"""Two JSON files of `treeattn-bench decode` side by side: rows of the same work, and the ratio of
their times. `treeattn-bench compare A.json B.json` runs it."""
import json
import sys

KEYS = ("tokens", "ranks", "dtype", "query_heads", "kv_heads", "algorithm")


def pages_of(row):
    return row.get("memory", {}).get("pages", "N/A")


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        rows = {(pages_of(row), *(row[key] for key in KEYS)): row for row in report["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"treeattn-bench: {path} is not a file of 'treeattn-bench decode --json': {error}")
    return report, rows


def describe(name, report):
    machine, options = report["machine"], report["options"]
    graph = ", graphs" if options.get("graph") else ""
    print(f"# {name}  {machine['cpu']}, {machine['cpus']} CPUs; device {options['device']},"
          f" group {options.get('group', 'host')}{graph}; version {report['version']};"
          f" {report['time']}")


def print_row(key, a, b):
    pages, tokens, ranks, dtype, heads, kv_heads, algorithm = key
    a_us, b_us = a["step_us"]["median"], b["step_us"]["median"]
    wrong = a.get("wrong", 0) + b.get("wrong", 0)
    print(f"{tokens:>10} {ranks:>5} {pages:>5} {dtype:>5} {f'{heads}/{kv_heads}':>6} {algorithm:>7}"
          f" {a_us:>10.1f} {b_us:>10.1f} {b_us / a_us:>6.2f} {a['kv_gbps']:>8.2f}"
          f" {b['kv_gbps']:>8.2f} {a['fraction']:>6.2f} {b['fraction']:>6.2f} {wrong:>6}")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: treeattn-bench compare A.json B.json")
    (a_report, a_rows), (b_report, b_rows) = load(sys.argv[1]), load(sys.argv[2])
    describe("A", a_report)
    describe("B", b_report)
    print(f"#{'tokens':>9} {'ranks':>5} {'pages':>5} {'dtype':>5} {'heads':>6} {'algo':>7}"
          f" {'A us':>10} {'B us':>10} {'B/A':>6} {'A GB/s':>8} {'B GB/s':>8} {'A frac':>6}"
          f" {'B frac':>6} {'#wrong':>6}")
    both = [key for key in a_rows if key in b_rows]
    for key in both:
        print_row(key, a_rows[key], b_rows[key])
    alone = len(a_rows) + len(b_rows) - 2 * len(both)
    if alone:
        print(f"# {alone} rows are in one of the files alone")
    if not both:
        sys.exit("treeattn-bench: the files have no row of the same work")


if __name__ == "__main__":
    main()
