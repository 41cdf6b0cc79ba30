#!/usr/bin/env python3
"""One page about some runs of treeattn-bench, to look at and to send: plots, tables, machines,
commands and all the numbers of their JSON files, in one file of HTML that loads nothing.
`treeattn-bench report A.json [B.json ...] -o report.html` runs it."""
import html
import os
import string
import sys

import bench_runs
from bench_fields import BadFile
from report_page import CSS, chart

USAGE = "usage: treeattn-bench report A.json [B.json ...] -o FILE.html"
NAMES = string.ascii_uppercase
# Columns whose names in the files are not for people; of others "_" is a space.
COLUMNS = {"attend_us": "attend µs", "exchange_us": "exchange µs", "kv_gbps": "KV GB/s",
           "read_gbps": "read GB/s", "gflops": "GFLOP/s",
           "exchange_bytes_per_rank": "bytes per rank", "others": "used by others"}
# What a step or a call is a part of.
FRACTIONS = {"decode": "part of reading", "llama": "part of reading",
             "attention": "part of the FMA loop"}
# The part of the CPUs that others used from which on a machine is not quiet.
BUSY = 0.05


def escape(text):
    return html.escape(str(text))


def number(value):
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def table(head, rows, caption):
    """A table that scrolls by itself on a narrow screen, also by keys. Columns of words are
    aligned on the left, those of numbers on the right."""
    text = [any(isinstance(row[i], str) and any(c.isalpha() for c in row[i].replace(" to ", ""))
                for row in rows) for i in range(len(head))]
    side = [" class=text" if t else "" for t in text]
    cells = "".join(f"<th scope=col{c}>{escape(COLUMNS.get(h, h.replace('_', ' ')))}</th>"
                    for h, c in zip(head, side))
    body = "".join("<tr>" + "".join(f"<td{c}>{escape(number(cell))}</td>"
                                    for cell, c in zip(row, side)) + "</tr>" for row in rows)
    return (f'<div class=scroll tabindex=0 role=region aria-label="{escape(caption)}"><table>'
            f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>")


# ---- Machines --------------------------------------------------------------------------------

def machines(runs):
    rows = []
    for name, run in runs:
        report, link = run.report, run.link or "no"
        rows.append([name, os.path.basename(run.path), run.kind, run.machine, run.devices, link,
                     report.get("machine", {}).get("system", ""), report.get("version", ""),
                     report.get("time", "")])
    head = ["run", "file", "command", "machine", "devices of the ranks", "emulated links", "system",
            "version", "time"]
    # A line ends between words of a command, not at the dashes of a flag.
    commands = "".join(
        f"<dt>{name}</dt><dd><code>"
        f"{' '.join(f'<span>{escape(word)}</span>' for word in run.command.split(' '))}"
        "</code></dd>" for name, run in runs)
    about = table(head, rows, "Machines, versions and times")
    return about + f"<h3>Commands</h3><dl>{commands}</dl>"


def places(runs):
    rows = [[name, rank, place.get("host", ""), place.get("device", ""), place.get("product", "")]
            for name, run in runs
            for rank, place in enumerate(run.report.get("launch", {}).get("places", []))]
    if not rows:
        return ""
    return (f"<details><summary>Host and device of each rank</summary>"
            f"{table(['run', 'rank', 'host', 'device', 'product'], rows, 'Ranks')}</details>")


# ---- Plots -----------------------------------------------------------------------------------

def axis_of(rows):
    """What time is drawn against: what rows differ in most."""
    names = [n for n in ("tokens", "bytes", "ranks") if n in rows[0].work]
    return max(names, key=lambda n: len({r.work[n] for r in rows}))


def words_of(work):
    """A work in words, for a title."""
    def part(name, value):
        name = name.replace("_", " ")
        if not isinstance(value, int):
            return f"{name} {value}"
        return f"{value} {name[:-1] if value == 1 and name.endswith('s') else name}"

    return ", ".join(part(name, value) for name, value in work.items() if value is not None)


def title_of(kind, shape, runs):
    """What a plot of these runs shows, in two: the machine, or each run's where they differ; then
    the shape, and emulated links."""
    places = {run.place for _, run in runs}
    each = len(runs) > 1
    where = (places.pop() if len(places) == 1
             else "; ".join(f"{name}: {run.place}" for name, run in runs))
    links = [f"{name}: {run.link}" if each else run.link for name, run in runs if run.link]
    return f"{kind} on {where}", "; ".join([words_of(shape)] + links)


def plots_of(kind, runs):
    """A plot for each shape: a line for each algorithm of each run."""
    rows = [(name, row) for name, run in runs for row in run.rows if run.kind == kind]
    if not rows:
        return []
    x = axis_of([row for _, row in rows])
    series_key = "kind" if kind == "exchange" else "algorithm"
    shapes = {}
    for name, row in rows:
        # Threads follow from the ranks, if nothing else was asked for.
        apart = (x, series_key, "threads") if x == "ranks" else (x, series_key)
        shape = {k: v for k, v in row.work.items() if k not in apart}
        lines = shapes.setdefault(tuple(shape.items()), {})
        lines.setdefault((name, row.work[series_key]), []).append(row)
    plots = []
    for shape, lines in shapes.items():
        drawn = {name for name, _ in lines}
        title, said = title_of(kind, dict(shape), [run for run in runs if run[0] in drawn])
        series = [(f"{name} {what}" if len(runs) > 1 else str(what),
                   sorted((r.work[x], r.median) for r in found), what, name)
                  for (name, what), found in lines.items()]
        plots.append(chart(title, said, x, "median time, µs", series))
    return plots


# ---- Tables ----------------------------------------------------------------------------------

def ratio_words(row):
    if None in (row.get("ratio_low"), row.get("ratio_high"), row.get("ratio")):
        return row.get("ratio")
    return f"{row['ratio']:.3g} ({row['ratio_low']:.3g} to {row['ratio_high']:.3g})"


def was_busy(run):
    return any((r.row.get("cpus_used_by_others") or 0) > BUSY for r in run.rows)


def busy_note(runs):
    """Beside the plots: which of them are of a machine that had other work."""
    busy = [name for name, run in runs if was_busy(run)]
    if not busy:
        return ""
    where = f"{'run' if len(busy) == 1 else 'runs'} {', '.join(busy)}" if len(runs) > 1 else "it"
    return (f"<p class=note>The machine was not quiet during {where}: other programs used more "
            f"than {BUSY * 100:g} % of its CPUs. Times mean little then, ratios something.</p>")


def rows_table(name, run):
    keys = [k for k in bench_runs.ROW_KEYS[run.kind] if any(r.work.get(k) is not None
                                                            for r in run.rows)]
    measures = [k for k in ("attend_us", "exchange_us", "kv_gbps", "read_gbps", "fraction",
                            "gflops", "words_per_second", "exchange_bytes_per_rank",
                            "messages_per_rank", "bytes_received_per_rank",
                            "messages_received_per_rank", "peak_bytes_per_rank", "checked",
                            "wrong")
                if any(r.row.get(k) is not None for r in run.rows)]
    busy = was_busy(run)
    titles = [FRACTIONS[run.kind] if k == "fraction" else k for k in measures]
    head = keys + ["median µs", "ratio (95 % range)"] + titles + (["others"] if busy else [])
    rows = [[r.work.get(k) for k in keys] + [r.median, ratio_words(r.row)]
            + [r.row.get(k) for k in measures]
            + ([r.row.get("cpus_used_by_others")] if busy else []) for r in run.rows]
    note = ("<p class=note>This machine was not quiet: the last column is the part of its CPUs "
            "that other programs used.</p>" if busy else "")
    label = f"{name}: {run.kind}" + (f", {run.link}" if run.link else "")
    return table(head, rows, label) + note


def comparison(runs):
    """Rows over those of the same work in the first run that has it."""
    known, pairs = {}, []
    for name, run in runs:
        for row in run.rows:
            first_name, first = known.setdefault(row.key, (name, row))
            if first_name != name:
                pairs.append((f"{name} over {first_name}", first, row))
    if len(runs) == 1:
        return ""
    # What is the same in all of them is said once.
    shared = set.intersection(*(set(row.work.items()) for _, _, row in pairs)) if pairs else set()
    rows = [[which, f"{row.median / first.median:.3g}", first.median, row.median,
             words_of({k: v for k, v in row.work.items() if (k, v) not in shared})]
            for which, first, row in pairs]
    common = {k: v for k, v in pairs[0][2].work.items() if (k, v) in shared} if pairs else {}
    caption = "The same work in several runs" + (f": {words_of(common)}" if common else "")
    head = ["runs", "ratio", "first µs", "other µs", "work"]
    found = (table(head, rows, caption) if rows
             else "<p>No two runs have a row of the same work.</p>")
    return f"<section id=side><h2>Side by side</h2>{found}</section>"


def raw(name, run):
    """The file itself: every number of it is in the page."""
    return (f"<details><summary>{name}: {escape(os.path.basename(run.path))}, all of it</summary>"
            f"<pre tabindex=0>{escape(run.text)}</pre></details>")


# ---- The page --------------------------------------------------------------------------------

def page(runs):
    plots = [p for kind in bench_runs.ROW_KEYS for p in plots_of(kind, runs)]
    links = any(run.link for _, run in runs)
    warning = ("<p class=note>Runs with <em>emulated links</em> are of one machine: messages cost "
               "what the flag says, attending shares its CPUs.</p>" if links else "")
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>treeattn-bench: {escape(', '.join(os.path.basename(r.path) for _, r in runs))}"
        f"</title>", f"<style>{CSS}</style>", "</head>", "<body>",
        '<a class=skip href="#plots">To the plots</a>',
        "<header><h1>Runs of treeattn-bench</h1></header>",
        "<main>", "<section id=runs><h2>Machines and commands</h2>", machines(runs), places(runs),
        warning, "</section>",
        f"<section id=plots><h2>Plots</h2>{busy_note(runs)}<div class=plots>"
        f"{''.join(plots) or '<p>Nothing was timed.</p>'}</div></section>",
        comparison(runs),
        "<section id=tables><h2>Tables</h2>",
        *(rows_table(name, run) for name, run in runs), "</section>",
        "<section id=files><h2>Files</h2>", *(raw(name, run) for name, run in runs), "</section>",
        "</main>", "</body>", "</html>", ""])


def wrong_usage(what):
    print(USAGE, file=sys.stderr)
    print(f"treeattn-bench: {what}", file=sys.stderr)
    sys.exit(2)


def parse(arguments):
    output, paths = None, []
    while arguments:
        word = arguments.pop(0)
        if word in ("-o", "--output"):
            if not arguments:
                wrong_usage("-o needs a file")
            output = arguments.pop(0)
        elif word.startswith("-") and word != "-":
            wrong_usage(f"unknown flag '{word}'")
        else:
            paths.append(word)
    return output, paths


def main():
    sys.stdout.reconfigure(errors="backslashreplace")
    output, paths = parse(sys.argv[1:])
    if not paths:
        wrong_usage("there is no file that --json wrote")
    if not output:
        wrong_usage("-o is missing: the page to write, such as -o report.html")
    if len(paths) > len(NAMES):
        wrong_usage(f"{len(paths)} files, but at most {len(NAMES)} fit a page")
    try:
        runs = list(zip(NAMES, map(bench_runs.load, paths)))
    except BadFile as error:
        sys.exit(f"treeattn-bench: {error}")
    if any(os.path.exists(output) and os.path.samefile(output, path) for path in paths):
        sys.exit(f"treeattn-bench: -o is {output}, which is one of the files")
    text = page(runs)
    try:
        with open(output, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        sys.exit(f"treeattn-bench: {output} cannot be written: {error.strerror}")
    rows = sum(len(run.rows) for _, run in runs)
    print(f"{output}: {len(runs)} run{'s' * (len(runs) > 1)}, {rows} row{'s' * (rows != 1)}")


if __name__ == "__main__":
    main()
