"""series of points, or groups of bars -> an SVG picture that is readable in light and in dark.

The colours follow the reader's scheme by a style sheet inside the picture. Each series is told by
its colour and by the shape of its marks. Blind spot: what the numbers mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 720, 64, 24, 44
PLOT_HEIGHT, BAR, GAP = 280, 16, 14
MAX_SERIES = 8

STYLE = """
svg { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
.paper { fill: #ffffff; } .ink { fill: #1f2328; } .soft { fill: #59636e; }
.grid { stroke: #d1d9e0; stroke-width: 1; } .title { font-weight: 600; font-size: 15px; }
.c0 { --c: #0b62c4; } .c1 { --c: #b4460a; } .c2 { --c: #8a6a00; } .c3 { --c: #1a7a3c; }
.c4 { --c: #7a3fb8; } .c5 { --c: #b02a5b; } .c6 { --c: #0f7480; } .c7 { --c: #57606a; }
.line { stroke: var(--c); stroke-width: 2; fill: none; } .mark { fill: var(--c); }
.range { stroke: var(--c); stroke-width: 1; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; } .ink { fill: #e6edf3; } .soft { fill: #9198a1; }
.grid { stroke: #30363d; }
.c0 { --c: #58a6ff; } .c1 { --c: #f0883e; } .c2 { --c: #e3b341; } .c3 { --c: #56d364; }
.c4 { --c: #bc8cff; } .c5 { --c: #ff7bac; } .c6 { --c: #39c5cf; } .c7 { --c: #b1bac4; }
}
"""


@dataclass(frozen=True)
class Point:
    """x, y and the range of y."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Axis:
    """Values -> places between start and stop, straight or by their logarithm."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool

    def place(self, value: float) -> float:
        low, high, value = (self._scaled(each) for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.stop - self.start)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def lines(
    title: str,
    x_title: str,
    series: dict[str, list[Point]],
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """A chart of up to MAX_SERIES lines, with the range of each point."""
    _check_count(len(series))
    # 1. The axes.
    points = [point for each in series.values() for point in each]
    bottom = TOP + 22 * math.ceil(len(series) / 3) + PLOT_HEIGHT
    xs = sorted({point.x for point in points})
    y_ticks = ticks(min(p.low for p in points), max(p.high for p in points), log_y)
    x_axis = Axis(xs[0], xs[-1], LEFT + 20, WIDTH - RIGHT - 20, log_x)
    y_axis = Axis(y_ticks[0], y_ticks[-1], bottom, bottom - PLOT_HEIGHT + 20, log_y)
    # 2. Grid, numbers and titles.
    parts = [_text(LEFT - 48, 24, title, "ink title"), *_legend(list(series), TOP)]
    for tick in y_ticks:
        y = y_axis.place(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, number(tick), "soft", "end"))
    for x in xs:
        parts.append(_text(x_axis.place(x), bottom + 20, number(x), "soft", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 42, x_title, "soft", "middle"))
    # 3. The series.
    for index, (name, own) in enumerate(series.items()):
        parts.append(_line(index, name, own, x_axis, y_axis))
    return _picture(bottom + 56, title, parts)


def bars(title: str, groups: dict[str, dict[str, float]]) -> str:
    """Groups of horizontal bars, the value behind each; the same name has the same colour."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    _check_count(len(names))
    highest = max(value for group in groups.values() for value in group.values())
    left, right = 140, WIDTH - RIGHT - 56
    parts = [_text(LEFT - 48, 24, title, "ink title"), *_legend(names, TOP)]
    y = TOP + 22 * math.ceil(len(names) / 3) + 8
    for group, values in groups.items():
        middle = y + BAR * len(values) / 2 + 4
        parts.append(_text(left - 10, middle, group, "ink", "end"))
        for name, value in values.items():
            width = max(1.0, (right - left) * value / highest)
            label = f"{name}: {number(value)}"
            parts.append(
                f'<rect class="mark c{names.index(name)}" x="{left}" y="{y + 1}" rx="2" '
                f'width="{width:.1f}" height="{BAR - 2}"><title>{escape(label)}</title></rect>'
            )
            parts.append(_text(left + width + 6, y + BAR - 4, number(value), "soft"))
            y += BAR
        y += GAP
    return _picture(y + 4, title, parts)


def ticks(low: float, high: float, is_log: bool) -> list[float]:
    """Round numbers from at most low to at least high: 1, 2, 5 times powers of ten.

    >>> ticks(0, 23.8, False)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    >>> ticks(8, 600, True)
    [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
    """
    if is_log:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        steps = [round(m * 10.0**p, 12) for p in powers for m in (1, 2, 5)]
        first = max(i for i, step in enumerate(steps) if step <= low)
        last = min(i for i, step in enumerate(steps) if step >= high)
        return steps[first : max(last, first + 1) + 1]
    raw = (high or 1) / 6
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    return [round(i * step, 12) for i in range(math.ceil((high or 1) / step) + 1)]


def number(value: float) -> str:
    """
    >>> [number(v) for v in (1024, 23.84, 0.5, 7.0)]
    ['1,024', '23.8', '0.5', '7']
    """
    digits = 0 if value >= 100 else 1 if value >= 1 else 2
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def _check_count(count: int) -> None:
    if count > MAX_SERIES:
        raise ValueError(
            f"{count} series in one picture; more than {MAX_SERIES} can't be told apart"
        )


def _line(index: int, name: str, points: list[Point], x_axis: Axis, y_axis: Axis) -> str:
    places = [(x_axis.place(p.x), y_axis.place(p.y)) for p in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<g class="c{index}"><polyline class="line" points="{path}"/>']
    for point, (x, y) in zip(points, places):
        low, high = y_axis.place(point.low), y_axis.place(point.high)
        if high != low:
            parts.append(
                f'<line class="range" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            )
        parts.append(_mark(index, x, y, f"{name}: {number(point.y)} at {number(point.x)}"))
    return "\n".join([*parts, "</g>"])


def _mark(index: int, x: float, y: float, label: str = "") -> str:
    """Circle, square, triangle and diamond in turn."""
    r = 4.5
    corners = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -r - 1), (r + 1, r), (-r - 1, r)],
        3: [(0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)],
    }.get(index % 4)
    title = f"<title>{escape(label)}</title>" if label else ""
    if corners is None:
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{r}">{title}</circle>'
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="mark" points="{points}">{title}</polygon>'


def _legend(names: list[str], top: float) -> list[str]:
    """Three in a row."""
    parts = []
    for index, name in enumerate(names):
        x, y = LEFT - 40 + 225 * (index % 3), top + 22 * (index // 3)
        parts.append(f'<g class="c{index}">{_mark(index, x, y)}</g>')
        parts.append(_text(x + 12, y + 4, name, "ink"))
    return parts


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _picture(height: float, title: str, parts: list[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{height:.0f}" rx="6"/>\n{inside}\n</svg>\n'
    )
