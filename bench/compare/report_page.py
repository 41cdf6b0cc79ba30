"""How a report looks: its style, and a plot as SVG. report.py puts the page together."""
import html
import math

CSS = """
:root { --ground: #fff; --text: #1a1a1a; --soft: #5a5a5a; --line: #d5d5d5; --mark: #0b57d0;
  --s0: #117a3d; --s1: #1f5fc4; --s2: #c2330f; --s3: #7b3fa0; --s4: #8a6100; --s5: #00707a;
  --s6: #6b6b6b; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --text: #e8e8e8; --soft: #a8adb3;
  --line: #3a3f45; --mark: #8ab4f8; --s0: #5ccf8b; --s1: #82b1ff; --s2: #ff9578; --s3: #d3a4f0;
  --s4: #e5c15a; --s5: #5fd3dd; --s6: #b5b5b5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 0 1rem 3rem; background: var(--ground);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; } h3 { font-size: 1rem; }
a { color: var(--mark); }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 2px; }
.skip { position: absolute; left: -100rem; } .skip:focus { left: 1rem; top: .5rem; }
.note { color: var(--soft); }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; max-width: 90vw; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child, .text { text-align: left; }
code, pre { font-size: .85rem; overflow-wrap: anywhere; }
pre { max-height: 24rem; overflow: auto; border: 1px solid var(--line); padding: .5rem; }
dt { float: left; font-weight: 600; } dd { margin-left: 2rem; }
summary { cursor: pointer; padding: .4rem 0; }
code span { display: inline-block; max-width: 100%; }
figure { margin: 1.5rem 0; } figcaption { overflow-wrap: anywhere; margin-bottom: .5rem; }
figcaption b, figcaption span { display: block; } figcaption span { font-size: .875rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr));
  gap: 0 2rem; }
svg { width: 100%; max-width: 36rem; height: auto; display: block; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .curve { fill: none; stroke-width: 2.5; }
ul.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
ul.key svg { width: 2.6rem; display: inline-block; vertical-align: middle; }
"""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 280, 92, 12, 10, 44
DASHES = ("", "9 5", "3 4", "14 4 3 4", "1 5", "9 3 1 3")


def color_of(what, order):
    """The same for an algorithm in all plots of a page."""
    fixed = {"tree": 0, "ring-q": 1, "ring-kv": 2, "repro": 3, "auto": 4, "grid": 0, "overlap": 1,
             "ring": 2, "doubling": 0, "binomial": 1, "scatter": 2, "all-gather": 3,
             "all-reduce": 4, "direct": 5, "bare": 6}
    return fixed.get(what, order % 7)


def marker(shape, x, y, color):
    """A point; each series has a form of its own, so that no line hides another without a trace."""
    forms = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
             f'<path d="M{x:.1f} {y - 6:.1f} l5.5 10 h-11z"/>',
             f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>',
             f'<path d="M{x:.1f} {y - 6:.1f} l6 6 l-6 6 l-6 -6z"/>')
    form = forms[shape % 4].replace("/>", f' fill="var(--ground)" stroke="var(--s{color})"'
                                          ' stroke-width="2.5"/>')
    return form


def ticks(low, high):
    """Numbers of a logarithmic axis: powers of ten, and more between them where it is short."""
    steps = (1, 1.5, 2, 3, 4, 5, 7) if high / low < 8 else (1, 2, 5) if high / low < 500 else (1,)
    found = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        found += [step * 10.0 ** exponent for step in steps]
    return [t for t in found if low * 0.999 <= t <= high * 1.001]


def words(value):
    if value >= 1024 and value % 1024 == 0:
        return f"{value // 1048576}M" if value % 1048576 == 0 else f"{value // 1024}k"
    return f"{value:g}"


def scale(low, high, first, last):
    """From a number to a place on a logarithmic axis."""
    span = math.log(high / low)
    return lambda v: first + (last - first) * (math.log(v / low) / span if span else 0.5)


def axes(x_at, y_at, xs, y_ticks, x_name, y_name):
    parts = []
    for tick in y_ticks:
        y = y_at(tick)
        parts.append(f'<line class=grid x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" '
                     f'y2="{y:.1f}"/>'
                     f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    last = -100.0
    for x in xs:
        if x_at(x) - last < 38:
            continue
        last = x_at(x)
        parts.append(f'<line class=grid x1="{last:.1f}" x2="{last:.1f}" y1="{TOP}" '
                     f'y2="{HEIGHT - BOTTOM}"/><text x="{last:.1f}" y="{HEIGHT - BOTTOM + 18}" '
                     f'text-anchor="middle">{words(x)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
                 f'{html.escape(x_name)}</text>')
    parts.append(f'<text transform="translate(13 {(HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
                 f'text-anchor="middle">{html.escape(y_name)}</text>')
    return "".join(parts)


def key_of(label, color, dash, shape):
    return (f'<li><svg viewBox="0 0 42 14" aria-hidden="true"><line x1="0" x2="42" y1="7" y2="7" '
            f'stroke="var(--s{color})" stroke-width="2.5" stroke-dasharray="{dash}"/>'
            f'{marker(shape, 21, 7, color)}</svg> {html.escape(label)}</li>')


def caption(title, shape):
    return (f"<figcaption><b>{html.escape(title)}</b><span class=note>{html.escape(shape)}</span>"
            "</figcaption>")


def bar_chart(title, shape, x_name, y_name, series):
    """Where all points have one x: a bar for each, from 0."""
    (x, _), most = series[0][1][0], max(y for _, found, _, _ in series for _, y in found)
    body, y = [], 8
    for order, (label, found, what, _) in enumerate(series):
        value = found[0][1]
        length = max(2.0, (WIDTH - 190) * value / most)
        body.append(f'<text x="100" y="{y + 15}" text-anchor="end">{html.escape(label)}</text>'
                    f'<rect x="108" y="{y}" width="{length:.1f}" height="20" '
                    f'fill="var(--s{color_of(what, order)})"/>'
                    f'<text x="{114 + length:.1f}" y="{y + 15}">{value:,.5g}</text>')
        y += 28
    shape = f"{words(x)} {x_name}, {shape}"
    said = html.escape(f"{title}; {shape}: " + ", ".join(f"{label} {found[0][1]:.5g}"
                                                         for label, found, _, _ in series))
    return (f'<figure>{caption(title, shape)}'
            f'<svg viewBox="0 0 {WIDTH} {y + 22}" role="img" aria-label="{said}">{"".join(body)}'
            f'<text x="108" y="{y + 14}">{html.escape(y_name)}</text></svg></figure>')


def chart(title, shape, x_name, y_name, series):
    """A figure with logarithmic axes: what and where it is in bold, then the shape of the work.
    `series` has (label, points, algorithm, run)."""
    points = [p for _, found, _, _ in series for p in found if p[0] > 0 and p[1] > 0]
    if not points:
        return ""
    xs = sorted({x for x, _ in points})
    if len(xs) == 1:
        return bar_chart(title, shape, x_name, y_name, series)
    low, high = min(y for _, y in points) / 1.3, max(y for _, y in points) * 1.3
    x_at = scale(xs[0], xs[-1], LEFT + 14, WIDTH - RIGHT - 14)
    y_at = scale(low, high, HEIGHT - BOTTOM, TOP)
    names = sorted({run for _, _, _, run in series})
    body, keys = [axes(x_at, y_at, xs, ticks(low, high), x_name, y_name)], []
    for order, (label, found, what, run) in enumerate(series):
        color, dash = color_of(what, order), DASHES[names.index(run) % len(DASHES)]
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in found)
        body.append(f'<polyline class=curve points="{path}" stroke="var(--s{color})" '
                    f'stroke-dasharray="{dash}" stroke-opacity="0.8"/>')
        body += [marker(order, x_at(x), y_at(y), color).replace(
            "/>", f"><title>{html.escape(label)}: {y:.6g} µs at {x:g}</title></"
            + marker(order, 0, 0, 0)[1:].split(" ")[0] + ">") for x, y in found]
        keys.append(key_of(label, color, dash, order))
    said = html.escape(f"{title}; {shape}. Lines: "
                       f"{', '.join(label for label, _, _, _ in series)}.")
    return (f'<figure>{caption(title, shape)}<svg viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'role="img" aria-label="{said}">{"".join(body)}</svg>'
            f'<ul class=key>{"".join(keys)}</ul></figure>')
