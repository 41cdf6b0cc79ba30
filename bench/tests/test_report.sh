#!/bin/sh
# treeattn-bench report: one page with every number of its files, that loads nothing; and what it
# says of files that are none. test_report_browser.sh looks at the same page in a browser.
#
#     test_report.sh PROGRAM PYTHON [PAGE]      PAGE: also leave the page there
set -u
page=${3:-}
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${python:?}" "${work:?}" "${failed:?}"

small='--heads 4 --kv-heads 2 --head-dim 32 --threads 1 -n 3'
# shellcheck disable=SC2086
run 0 decode -b 256 -e 1k -f 2 --ranks 4 --algo tree,ring-q,ring-kv --link 200us,1GB/s $small \
    --json "$work/a.json"
# shellcheck disable=SC2086
run 0 decode -b 256 -e 1k -f 2 --ranks 4 --algo tree,ring-q,ring-kv $small --json "$work/b.json"
# shellcheck disable=SC2086
run 0 attention -b 256 --ranks 2 $small --json "$work/c.json"
run 0 exchange -b 4k -e 16k -n 3 --json "$work/d.json"
run 0 llama --tokens 64 --new 2 --ranks 2 --threads 1 --json "$work/e.json"
run 0 report "$work/a.json" "$work/b.json" "$work/c.json" "$work/d.json" "$work/e.json" \
    -o "$work/page.html"
says out "5 runs"
"$python" - "$work/page.html" "$work"/[abcde].json <<'PYTHON' || fail "the page is not right"
import html.parser, re, sys

page = open(sys.argv[1], encoding="utf-8").read()


class Reader(html.parser.HTMLParser):
    """The words of the page; every element is closed in order."""
    void = {"meta", "link", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.words, self.addresses = [], [], []

    def handle_starttag(self, tag, attributes):
        self.addresses += [v for k, v in attributes if k in ("src", "href", "data", "action")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)


reader = Reader()
reader.feed(page)
reader.close()
assert not reader.open, reader.open
assert all(a.startswith(("#", "data:")) for a in reader.addresses), reader.addresses
assert "url(" not in page and "@import" not in page and "<script" not in page
text = " ".join(reader.words)
have = set(re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text))
for path in sys.argv[2:]:
    numbers = set(re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", open(path).read()))
    assert len(numbers) > 20 and numbers <= have, sorted(numbers - have)[:5]
assert page.count("<figure>") >= 5, page.count("<figure>")
titles = re.findall(r"<figcaption>(.*?)</figcaption>", page)
assert len(titles) >= 5
for title in titles:  # of one machine: its name, and then the shape
    machine = re.match(r"<b>\w+ on (.*?, \d+ CPUs)</b><span class=note>", title).group(1)
    assert machine in text and re.search(r"\d ranks", title), title
assert any("emulated links" in title for title in titles), titles
assert " ".join(text.split()).count("treeattn-bench decode -b 256") >= 2
assert not re.search(r"\b1 (threads|ranks|grid rows|grid columns)\b", text)
for name, part in (("a: decode", "part of reading"), ("c: attention", "part of the FMA loop"),
                   ("e: llama", "part of reading")):
    table = re.search(f"<caption>{name[0].upper()}{name[1:]}.*?</thead>", page, re.S).group(0)
    assert table.count(">part of ") == 1 and f">{part}<" in table, (name, table)
for word in ("emulated links", "tree", "ring-kv", "prefers-color-scheme", "Side by side",
             "KV GB/s", "attend µs", "messages received per rank"):
    assert word in page, word
PYTHON

# What was not measured is in no table, nor is the 0 that files had for it.
run 0 llama --tokens 64 --new 2 --ranks 2 --threads 1 --read 0 --json "$work/unread.json"
sed 's/\("fraction": \|"read_gbps": \)null/\10/' "$work/unread.json" >"$work/zero.json"
! cmp -s "$work/unread.json" "$work/zero.json" || fail "there is no null in the JSON"
for file in unread zero; do
    run 0 report "$work/$file.json" -o "$work/unread.html"
    ! grep -q 'part of reading\|read GB/s' "$work/unread.html" || fail "$file: what was not read"
    run 0 compare "$work/$file.json" "$work/e.json"
    says out "A frac B frac"
    grep -q ' - *[0-9]*\.[0-9][0-9] *0$' "$work/out" || fail "$file: no - beside a fraction"
    run 0 compare "$work/$file.json" "$work/$file.json"
    ! grep -q frac "$work/out" || fail "$file: a fraction of what was not read"
done

# What is no file of ours, and what cannot be written: a sentence, and no page.
echo '{"rows": [}' >"$work/bad.json"
run 1 report "$work/bad.json" -o "$work/none.html"
says err "is not a file of treeattn-bench --json"
run 1 report "$work/missing.json" -o "$work/none.html"
says err "cannot be read"
[ ! -e "$work/none.html" ] || fail "a page of nothing was written"
run 1 report "$work/a.json" -o /nonexistent/page.html
says err "cannot be written"
run 2 report
says err "usage: treeattn-bench report"
run 2 report "$work/a.json"
says err "-o is missing"
run 2 report "$work/a.json" -o
says err "-o needs a file"
run 2 report --out "$work/a.json"
says err "unknown flag '--out'"
# Names from files are words, never markup.
sed 's/"cpu": "[^"]*"/"cpu": "<script>alert(1)<\/script>"/' "$work/b.json" >"$work/evil.json"
run 0 report "$work/evil.json" -o "$work/evil.html"
! grep -q '<script' "$work/evil.html" || fail "markup from a file is in the page"

[ -z "$page" ] || cp "$work/page.html" "$page"
[ "$failed" = 0 ] && echo "ok"
exit "$failed"
