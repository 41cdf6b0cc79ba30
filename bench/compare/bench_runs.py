"""JSON files of treeattn-bench as runs: which command wrote them, what defines the work of a row,
and its time. compare.py and report.py read files with it; bench_fields.py has the rules by which a
file is refused."""
import json
import statistics

from bench_fields import BadFile, check_report, check_row

# Of each command: what defines the work of a row beside the options, and what its rows are called.
ROW_KEYS = {
    "decode": ("tokens", "ranks", "threads", "pages", "dtype", "kv_dtype", "query_heads",
               "kv_heads", "algorithm"),
    "attention": ("tokens", "ranks", "threads", "map", "grid_rows", "grid_columns", "dtype",
                  "query_heads", "kv_heads", "head_dim", "mask", "pass", "algorithm"),
    "exchange": ("bytes", "ranks", "kind"),
    "llama": ("tokens", "ranks", "threads", "algorithm"),
}

# Options that say how and where a row was run, and not what its work was: a comparison is of these.
CONDITIONS = ("device", "group", "graph", "cluster", "simd", "warmup", "check", "scaling", "pages",
              "one_row_by", "many_rows_by", "link")

# On a GPU the host's threads and pages have no part in a step.
HOST_ONLY = ("threads", "pages")

# Numbers that no run can have as 0.
NEVER_ZERO = ("fraction", "read_gbps")

# The most characters of a file: thousands of rows with all their samples.
MOST = 1 << 28


class Run:
    """One file."""

    def __init__(self, path, report, text):
        self.path, self.report, self.text = path, report, text
        check_report(path, report)
        self.kind = kind_of(report)
        if self.kind not in ROW_KEYS:
            raise BadFile(f"{path} was written by '{self.kind}': only files of "
                          f"{', '.join(ROW_KEYS)} can be read")
        for i, row in enumerate(report["rows"]):
            if has_time(row):
                check_row(path, f"rows[{i}]", row, self.kind)
        options = report.get("options", {})
        self.options = {name: value for name, value in options.items() if name not in CONDITIONS}
        if self.kind == "decode":  # files from before there was a choice
            self.options.setdefault("weights", "exact")
        if self.kind == "llama":
            # Both have weights: how they are divided, and where they are from.
            self.options.update({f"model.{name}": value
                                 for name, value in report.get("model", {}).items()})
        self.rows = [Row(self, row) for row in report["rows"]
                     if has_time(row) and times_of(row)]

    @property
    def link(self):
        """Of emulated links, or ""."""
        return self.report.get("options", {}).get("link", {}).get("what", "")

    @property
    def machine(self):
        machine = self.report.get("machine", {})
        return f"{machine.get('cpu', 'unknown CPU')}, {machine.get('cpus', '?')} CPUs"

    @property
    def devices(self):
        """The devices of the ranks, as people say it: "8 × NVIDIA H100, host"."""
        counts = {}
        for place in self.report.get("launch", {}).get("places", []):
            name = place.get("product") or place.get("device", "?")
            counts[name] = counts.get(name, 0) + 1
        if not counts:
            return self.report.get("options", {}).get("device", self.report.get("device", "host"))
        return ", ".join(name if name == "host" else f"{count} × {name}"
                         for name, count in counts.items())

    @property
    def place(self):
        """Where it ran, for a title: the CPUs, or the GPUs."""
        return self.machine if self.devices == "host" else self.devices

    @property
    def command(self):
        return " ".join(["treeattn-bench", self.kind, *map(str, self.report.get("arguments", []))])


class Row:
    """One row: its work, and its times in microseconds."""

    def __init__(self, run, row):
        # Files from before there was null have 0 for what was not measured.
        self.run = run
        self.row = row = {k: None if k in NEVER_ZERO and v == 0 else v for k, v in row.items()}
        values = dict(row, pages=row.get("memory", {}).get("pages"))
        on_gpu = row.get("clock") == "events"
        self.work = {key: values.get(key) for key in ROW_KEYS[run.kind]
                     if not (on_gpu and key in HOST_ONLY)}
        self.times = times_of(row)
        self.median = statistics.median(self.times)

    @property
    def key(self):
        """Everything that defines the work, of the row and of the whole run."""
        both = {**self.run.options, **{f"row.{k}": v for k, v in self.work.items()}}
        return json.dumps([self.run.kind, both], sort_keys=True)


def kind_of(report):
    program = report.get("program", report.get("command", ""))
    words = str(program).split()
    return "decode" if words == ["treeattn-bench"] else words[-1] if words else ""


def times_of(row):
    return row["step_us"]["samples"] if "step_us" in row else row["us"]


def has_time(row):
    """Rows that are only predicted have none."""
    return "step_us" in row or "us" in row


def refuse_constant(name):
    raise ValueError(f"{name} is no number of JSON")


def read(path):
    """The text of a file, and what it says; BadFile if that is no object."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST + 1)
        if len(text) > MOST:
            raise BadFile(f"{path} is longer than {MOST} characters")
        report = json.loads(text, parse_constant=refuse_constant)
        json.dumps(report, ensure_ascii=False).encode()  # halves of characters cannot be printed
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadFile(f"{path} cannot be read: {why}") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not a file of treeattn-bench --json: {error}") from None
    if not isinstance(report, dict):
        raise BadFile(f"{path} is not a file of treeattn-bench --json, which has rows")
    return report, text


def load(path):
    """The run in a file; BadFile if there is none."""
    report, text = read(path)
    return Run(path, report, text)


def said(value):
    return value if isinstance(value, str) else json.dumps(value)


def differing_options(a, b):
    """Options that define the work and differ between two runs, for people."""
    names = sorted({*a.options, *b.options})
    return [f"{name} is {said(a.options.get(name, 'not there'))} and "
            f"{said(b.options.get(name, 'not there'))}"
            for name in names if a.options.get(name) != b.options.get(name)]
