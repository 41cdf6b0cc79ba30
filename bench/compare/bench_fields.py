"""What a JSON file of treeattn-bench must have for compare.py and report.py to read it: a rule for
each field that they use. bench_runs.py checks a file once, when it is loaded; behind it no value is
of a wrong type or out of range. Fields that have no rule are not read, and may be anything."""
import json
import math


class BadFile(Exception):
    """A file that is none of ours; its text is for people."""


# ---- Rules: each returns None, or what would be right ------------------------------------------

def word(value):
    if isinstance(value, str) and value.isprintable():
        return None
    return "must be a text of printable characters"


def whole(least):
    def rule(value):
        if type(value) is int and least <= value < 2 ** 63:
            return None
        return f"must be a whole number from {least} to 2^63 - 1"
    return rule


def measure(value):
    """null is how the program writes a number that it does not have."""
    if value is None or is_number(value) and 0 <= value <= 1e300:
        return None
    return "must be a number from 0 to 1e300, or null"


def time(value):
    """Of a sample. What is outside these bounds is no time of a step, and no axis shows it."""
    if is_number(value) and 1e-6 <= value <= 1e15:
        return None
    return "must be a time from 1e-6 to 1e15 microseconds"


def option(value):
    """Options are compared and printed, whatever they are."""
    return word(value) if isinstance(value, str) else None


def is_number(value):
    return type(value) in (int, float) and math.isfinite(value)


# ---- Fields -------------------------------------------------------------------------------------

# A dict has the rules of an object's fields, "*" that of all others; a list that of its elements.
# A name with ! must be there.
PLACE = {"host": word, "device": word, "product": word}
REPORT = {
    "program": word, "command": word, "arguments": [word], "version": word, "time": word,
    "device": word, "machine": {"cpu": word, "cpus": whole(0), "system": word},
    "launch": {"places": [PLACE]},
    "options": {"device": word, "link": {"what": word}, "*": option},
    "model": {"*": option},
    "rows!": [{}],
}

ROW = {
    "tokens": whole(1), "bytes": whole(1), "ranks": whole(1), "threads": whole(0),
    "query_heads": whole(1), "kv_heads": whole(1), "head_dim": whole(1), "grid_rows": whole(0),
    "grid_columns": whole(0), "dtype": word, "kv_dtype": word, "algorithm": word, "kind": word,
    "map": word, "mask": word, "pass": word, "clock": word, "memory": {"pages": word},
    "step_us": {"samples!": [time]}, "us": [time], "wrong": whole(0), "checked": whole(0),
    **dict.fromkeys(
        ("ratio", "ratio_low", "ratio_high", "attend_us", "exchange_us", "kv_gbps", "read_gbps",
         "fraction", "gflops", "words_per_second", "exchange_bytes_per_rank", "messages_per_rank",
         "bytes_received_per_rank", "messages_received_per_rank", "peak_bytes_per_rank",
         "cpus_used_by_others"), measure),
}

# Of each command, what its rows are drawn and told apart by.
NEEDED = {"decode": ("tokens", "ranks", "algorithm"), "attention": ("tokens", "ranks", "algorithm"),
          "exchange": ("bytes", "ranks", "kind"), "llama": ("tokens", "ranks", "algorithm")}


def shown(value):
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def check(path, name, value, rule):
    """Does the value of this name follow its rule? If not: BadFile, with the file and the field."""
    if isinstance(rule, dict):
        right = None if isinstance(value, dict) else "must be an object"
    elif isinstance(rule, list):
        right = None if isinstance(value, list) else "must be a list"
    else:
        right = rule(value)
    if right:
        raise BadFile(f"{path}: {name} is {shown(value)}, but {right}")
    if isinstance(rule, list):
        for i, element in enumerate(value):
            check(path, f"{name}[{i}]", element, rule[0])
    elif isinstance(rule, dict):
        check_fields(path, name, value, rule)


def check_fields(path, name, value, rules):
    known = {field.rstrip("!"): rule for field, rule in rules.items()}
    for field in (f[:-1] for f in rules if f.endswith("!")):
        if field not in value:
            raise BadFile(f"{path} has no {join(name, field)}")
    for field, inner in value.items():
        rule = known.get(field, rules.get("*"))
        if rule is not None:
            check(path, join(name, field), inner, rule)


def join(name, field):
    field = field if field.isprintable() else shown(field)
    return f"{name}.{field}" if name else field


def check_report(path, report):
    check_fields(path, "", report, REPORT)


def check_row(path, name, row, kind):
    """A row, before it is read; those that were not measured are left out by who reads them."""
    check_fields(path, name, row, {**ROW, **{f"{field}!": ROW[field] for field in NEEDED[kind]}})
