#!/usr/bin/env python3
"""treeattn-bench compare and report with files that are broken: whatever is in them, the end is a
table or a page, or one line that names the file. Each value of a good file of each command is
replaced by each of some wrong ones, and left out; files are cut off.

    test_bench_files.py PROGRAM
"""
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "compare")
sys.path.insert(0, SOURCE)
import compare  # noqa: E402
import report  # noqa: E402

SMALL = "--heads 4 --kv-heads 2 --head-dim 32 --threads 1 -n 2".split()
COMMANDS = {
    "decode": ["-b", "256", "--ranks", "2", "--algo", "tree,ring-q", "--link", "100us,1GB/s",
               *SMALL],
    "attention": ["-b", "64", "--ranks", "2", *SMALL],
    "exchange": ["-b", "4k", "-n", "2"],
    "llama": ["--tokens", "32", "--new", "2", "--ranks", "2", "--threads", "1"],
}
GONE = object()
WRONG = (GONE, None, "x", [], {}, -1, 0, float("nan"), True, 10 ** 40, "\ud800", "\x1b[2J\nx")


def run(main, *arguments):
    """Exit code, output and error of a script's main()."""
    out, error = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before, sys.argv = sys.argv, ["script", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            main()
        return 0, out, ""
    except SystemExit as end:
        text = end.code if isinstance(end.code, str) else error.getvalue()
        return 1, out, text
    finally:
        sys.argv = before


def places(value, path=()):
    """The paths of all values in a file; of a list, those in its first two, which the others are
    like."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(
        value, list) else ()
    for key, found in inner:
        yield from places(found, path + (key,))


def changed(value, path, wrong):
    """A copy with another value at this path."""
    if not path:
        return {} if wrong is GONE else wrong
    copy = value.copy()
    if len(path) == 1 and wrong is GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], wrong)
    return copy


class Judge:
    def __init__(self, work):
        self.bad, self.page = os.path.join(work, "bad.json"), os.path.join(work, "page.html")
        self.count = self.refused = 0

    def case(self, text, good, what):
        with open(self.bad, "w", encoding="utf-8") as file:
            file.write(text)
        runs = [(compare.main, (self.bad, self.bad)), (report.main, (self.bad, "-o", self.page))]
        if self.count % 7 == 0:  # beside a good one the same is read, and little else is done
            runs.append((compare.main, (good, self.bad)))
        for main, arguments in runs:
            try:
                code, _, error = run(main, *arguments)
            except Exception as problem:  # whatever it is: a user would see a traceback
                raise AssertionError(f"{what}: {problem!r}") from problem
            self.count += 1
            self.refused += code
            line = re.fullmatch(r"treeattn-bench: [^\n]+", error)
            assert code == 0 or line and error.isprintable(), f"{what}: {error!r}"
            # Who is to blame is named, but where two good files do not go together.
            apart = re.search("no row of the same work|not the same", error)
            assert code == 0 or apart or self.bad in error, f"{what}: {error}"

    def refuses(self, value, sentence):
        """This file is refused by both with this sentence."""
        with open(self.bad, "w", encoding="utf-8") as file:
            json.dump(value, file)
        for main, arguments in ((compare.main, (self.bad, self.bad)),
                                (report.main, (self.bad, "-o", self.page))):
            code, _, error = run(main, *arguments)
            assert code == 1 and error == f"treeattn-bench: {self.bad}{sentence}", error


def sentences(judge, good):
    """The file, the field, its value, and what would be right."""
    for path, value, sentence in (
            (("machine",), "x", ': machine is "x", but must be an object'),
            (("machine", "cpus"), None,
             ": machine.cpus is null, but must be a whole number from 0 to 2^63 - 1"),
            (("rows",), GONE, " has no rows"),
            (("rows", 1, "tokens"), GONE, " has no rows[1].tokens"),
            (("rows", 0), 5, ": rows[0] is 5, but must be an object"),
            (("rows", 1, "step_us", "samples", 1), 0, ": rows[1].step_us.samples[1] is 0, but must "
             "be a time from 1e-6 to 1e15 microseconds"),
            (("rows", 0, "fraction"), "x",
             ': rows[0].fraction is "x", but must be a number from 0 to 1e300, or null'),
            (("launch", "places", 1, "device"), [], ": launch.places[1].device is [], but must be "
             "a text of printable characters")):
        judge.refuses(changed(good, path, value), sentence)
    without = changed(good, ("rows", 0, "fraction"), None)  # a number that a run does not have
    with open(judge.bad, "w", encoding="utf-8") as file:
        json.dump(without, file)
    code, out, _ = run(compare.main, judge.bad, judge.bad)
    out.seek(0)
    assert code == 0 and re.search(r" 1\.00 +- +- +0\n", out.read())


def with_the_program(program, judge, good):
    """The same by the program itself, and what concerns files as such."""
    def ends(code, said, *arguments):
        end = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert end.returncode == code and said in end.stdout + end.stderr, end
        assert end.stderr.count("\n") <= 1, end.stderr

    judge.case("{}", good, "an empty object")
    ends(1, "has no rows", "compare", judge.bad, good)
    ends(1, "has no rows", "report", judge.bad, "-o", judge.page)
    ends(1, "is one of the files", "report", good, "-o", good)
    ends(0, "1 run, 2 rows", "report", good, "-o", judge.page)
    ends(1, "cannot be read", "compare", os.path.dirname(good), good)
    # Rows that are there twice, in one of the files.
    with open(good, encoding="utf-8") as file:
        twice = json.load(file)
    twice["rows"].append(twice["rows"][0])
    with open(judge.bad, "w", encoding="utf-8") as file:
        json.dump(twice, file)
    ends(0, "# 1 rows are in one of the files alone", "compare", judge.bad, good)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as work:
        judge = Judge(work)
        for command, flags in COMMANDS.items():
            good = os.path.join(work, f"{command}.json")
            subprocess.run([program, command, *flags, "--json", good], check=True,
                           stdout=subprocess.DEVNULL)
            with open(good, encoding="utf-8") as file:
                value = json.load(file)
            value.pop("info", None)  # long, and read by nobody
            value["rows"] = value["rows"][:2 if command == "decode" else 1]
            value["arguments"] = value["arguments"][:2]
            with open(good, "w", encoding="utf-8") as file:
                json.dump(value, file)
            if command == "decode":
                sentences(judge, value)
                with_the_program(program, judge, good)
            text = json.dumps(value)
            for end in range(0, len(text), len(text) // 40):
                judge.case(text[:end], good, f"{command} cut off at {end}")
            for path in places(value):
                for wrong in WRONG:
                    if path or wrong is not GONE:
                        judge.case(json.dumps(changed(value, path, wrong)), good,
                                   f"{command} with {wrong!r} at {path}")
        for text in ("[" * 100000, '{"a":' * 100000, "\0", "\ufeff{}", "1" * 10000):
            judge.case(text, good, f"a file of {text[:9]!r}")
        print(f"{judge.count} runs, {judge.refused} of them refused")


if __name__ == "__main__":
    main()
