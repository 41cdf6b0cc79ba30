#!/usr/bin/env python3
"""Tables of JSON files of `treeattn-bench llama` for a page, with the plots that bench/plot/plot.py
makes of them below each: plots/llama-NAME-time.svg for NAME.json.

    tables.py FILE.json...                 print them
    tables.py --into PAGE FILE.json...     put them between the two lines of PAGE that say so
"""
import json
import os
import sys
import textwrap

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLUMNS = ("ranks", "algorithm", "min, ms", "median, ms", "p99, ms", "words/s", "ratio",
           "weights / attention / exchange, %", "MB sent", "fraction of reading")
PROMPT_COLUMNS = ("prefill, s", "weights / attention / exchange, %", "GFLOP/s",
                  "of the library alone")
MEMORY_COLUMNS = ("KV, MB", "weights, MB", "other, MB")


def table(columns, rows):
    return ["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)]


def shares(row, prefix=""):
    return " / ".join(f"{100 * row[f'{prefix}{what}_share']:.0f}"
                      for what in ("weights", "attend", "exchange"))


def step_row(row):
    """A word by one algorithm; behind a prompt with the time of both together."""
    step = row["step_us"]
    together = [f"{row['together_us'] / 1e6:.1f}"] if "together_us" in row else []
    return [str(row["ranks"]), row["algorithm"], *(f"{step[k] / 1e3:.1f}"
                                                   for k in ("min", "median", "p99")),
            f"{row['words_per_second']:.2f}", f"{row['ratio']:.2f}", shares(row),
            f"{row['exchange_bytes_per_rank'] / 1e6:.2f}",
            f"{row['fraction']:.2f}" if row["fraction"] else "-", *together]


def shared_row(row):
    """What all algorithms share: the prompt, if there is one, and memory."""
    prompt = []
    if "prefill_us" in row:
        fraction = row["prefill_fraction"]
        prompt = [f"{row['prefill_us'] / 1e6:.1f}", shares(row, "prefill_"),
                  f"{row['prefill_gflops']:.0f}" if row["prefill_gflops"] else "-",
                  f"{fraction:.2f}" if fraction else "-"]
    memory = (f"{row[f'{what}_bytes_per_rank'] / 1e6:.0f}" for what in ("kv", "weight", "other"))
    return [str(row["ranks"]), *prompt, *memory]


def title(report):
    options, rows = report["options"], report["rows"]
    lengths = ", ".join(dict.fromkeys(f"{r['tokens']:,}" for r in rows))
    prompt = ("no prompt: random numbers in the cache" if options["prefill"] == "none"
              else f"prompt by {options['prefill']}, products of many rows by "
                   f"{rows[0]['many_rows_by']}")
    weights = ("weights divided over the ranks" if options["weights"] == "tensor"
               else "all weights read by every rank")
    link = options.get("link", {}).get("what")
    machine = report["machine"]
    return (f"{report['model']['name']}, {lengths} tokens, {prompt}; {weights}; "
            f"{link or 'ranks are threads that share the memory of this machine'}; "
            f"{options['new']} words; {machine['cpu']}, {machine['cpus']} CPUs.")


def section(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    rows, name = report["rows"], os.path.splitext(os.path.basename(path))[0]
    has_prompt = "prefill_us" in rows[0]
    columns = COLUMNS + ("together, s",) * has_prompt
    shared = ("ranks",) + PROMPT_COLUMNS * has_prompt + MEMORY_COLUMNS
    first = {(r["ranks"], r["tokens"]): r for r in reversed(rows)}
    plot = f"![time of a word against ranks](plots/llama-{name}-time.svg)"
    return [*textwrap.wrap(title(report), 120), "", *table(columns, map(step_row, rows)), "",
            *table(shared, map(shared_row, reversed(first.values()))), "", plot, ""]


def put_into(page, lines):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"tables.py: {page} must have one line '{BEGIN}' and one line '{END}'")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    with open(page, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n\n" + "\n".join(lines) + "\n" + END + after)


def main():
    arguments, page = sys.argv[1:], None
    if arguments[:1] == ["--into"]:
        page, arguments = arguments[1:2], arguments[2:]
    if not arguments or page == []:
        sys.exit(__doc__)
    lines = [line for path in arguments for line in section(path)]
    if page:
        put_into(page[0], lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
