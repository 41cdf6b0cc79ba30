"""Tables of attention.sh: speed-ups over the ring, measured and predicted, from JSON files of
treeattn-bench attention."""

import json
import statistics
import sys


def main():
    rows = []
    for path in sys.argv[1:]:
        with open(path) as file:
            rows += json.load(file)["rows"]
    if any(row["wrong"] for row in rows):
        sys.exit("some results are wrong")
    for title in ("forward", "backward"):
        print(f"{title}, ms measured (predicted):\n")
        print("| ranks | grid | | with overlap | | ring | ring / grid | ring / overlap |")
        print("| ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |")
        for ranks in sorted({row["ranks"] for row in rows}):
            one = {row["algorithm"]: row for row in rows
                   if row["ranks"] == ranks and row["pass"] == title}
            cells = [str(ranks)]
            for name in ("grid", "overlap", "ring"):
                if name != "ring":
                    cells.append(f"{one[name]['grid_rows']} × {one[name]['grid_columns']}")
                cells.append(f"{ms(one[name]):.0f} ({one[name]['model_us'] * 1e-3:.0f})")
            for name in ("grid", "overlap"):
                measured = ms(one["ring"]) / ms(one[name])
                predicted = one["ring"]["model_us"] / one[name]["model_us"]
                cells.append(f"{measured:.2f} ({predicted:.2f})")
            print("| " + " | ".join(cells) + " |")
        print()


def ms(row):
    return statistics.median(row["us"]) * 1e-3


main()
