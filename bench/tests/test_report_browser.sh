#!/bin/sh
# The page of `treeattn-bench report` in headless Chromium: no message in the console, no request
# but for the page itself, nothing wider than a phone's screen but what scrolls by itself, and every
# part that scrolls can be reached by the keyboard. Leaves screenshots for people to look at. Exit
# 77 where there is no Chromium (Debian: chromium). .ci/full runs it.
#
#     test_report_browser.sh PROGRAM PYTHON DIRECTORY
set -eu
program=$1
python=$2
where=$3
here=$(cd -- "$(dirname -- "$0")" && pwd)

browser=$(command -v chromium || command -v chromium-browser || true)
[ -n "$browser" ] || {
    echo 'no Chromium here: the page was not looked at in a browser'
    exit 77
}
mkdir -p "$where"
where=$(cd -- "$where" && pwd)
"$here/test_report.sh" "$program" "$python" "$where/page.html"

profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# browse FLAGS... ADDRESS: what it logs goes to $profile/log.
browse()
{
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$profile/data" \
        --hide-scrollbars --enable-logging=stderr --log-level=0 --disable-component-update \
        --disable-background-networking --no-first-run "$@" 2>"$profile/log"
    ! grep 'CONSOLE' "$profile/log" || {
        echo 'the console has messages'
        exit 1
    }
}

for mode in light:1 dark:0; do
    scheme=${mode%:*}
    for size in phone:390,6000 desk:1200,4000; do
        browse --blink-settings=preferredColorScheme="${mode#*:}" --window-size="${size#*:}" \
            --screenshot="$where/$scheme-${size%:*}.png" "file://$where/page.html"
        [ -s "$where/$scheme-${size%:*}.png" ]
    done
done

# What it asked for, by its own log; what a browser asks for by itself goes to its maker's hosts.
browse --log-net-log="$profile/net.json" --dump-dom "file://$where/page.html" >"$profile/dom"
grep -q '<figure>' "$profile/dom"
"$python" - "$profile/net.json" <<'PYTHON'
import re, sys

text = open(sys.argv[1], encoding="utf-8", errors="replace").read()
asked = {a for a in re.findall(r'"url":"([^"]*)"', text) if a.startswith(("http", "ws"))}
own = re.compile(r"https?://([^/]*\.)?(google|gstatic|googleapis|gvt1)\.com/")
assert all(own.match(address) for address in asked), sorted(asked)
PYTHON

# A page that measures itself: this script is not part of the report.
sed 's|</body>|<script>\
var wide = document.documentElement.scrollWidth > window.innerWidth;\
var lost = Array.from(document.querySelectorAll("*")).filter(function (e) {\
  var s = getComputedStyle(e);\
  return (s.overflowX == "auto" \&\& e.scrollWidth > e.clientWidth) \&\& e.tabIndex < 0;\
}).length;\
var plots = document.querySelectorAll("svg[role=img]").length;\
document.title = "measured " + wide + " " + lost + " " + plots;\
</script></body>|' "$where/page.html" >"$profile/measured.html"
browse --window-size=390,800 --dump-dom "file://$profile/measured.html" >"$profile/dom"
grep -q '<title>measured false 0 [1-9]' "$profile/dom" || {
    grep '<title>' "$profile/dom" | head -n 1
    echo 'the page is wider than a phone, or a part of it cannot be scrolled by keys'
    exit 1
}
echo "ok, screenshots are in $where"
