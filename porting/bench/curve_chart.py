"""The time to N steps as a picture for HTML pages: eager time over ported time, both axes logarithmic."""

from __future__ import annotations

import math
from html import escape
from typing import Any, Callable, Iterator, List, Mapping, Sequence, Tuple

from .charts import EAGER_COLOUR, PORTED_COLOUR
from .curve import CURVE_SIDES, allow_seconds
from .pages import write_seconds

__all__ = ["draw_curve"]

Plain = Mapping[str, Any]
Point = Tuple[float, float]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 340, 60, 130, 14, 40
_COLOURS = {"cold": "#c0602b", "warm": PORTED_COLOUR}
_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw_curve(curve: Plain) -> Iterator[str]:
    """Draw the ratios of a curve as SVG: eager is the line at 1, the band below it what a port may be behind."""
    steps, allowed = curve["steps"], _find_allowed(curve)
    ratios = [ratio for side in CURVE_SIDES for ratio in curve[side]["ratios"] if ratio is not None]
    values = [1.0, *(value for _steps, value in allowed), *(ratio[end] for ratio in ratios for end in ("low", "high"))]
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    first, last = math.log10(steps[0]), math.log10(steps[-1])

    def x(number: float) -> float:
        share = (math.log10(number) - first) / (last - first) if last > first else 0.0
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(ratio: float) -> float:
        share = (high - math.log10(ratio)) / (high - low)
        return round(_TOP + share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def join(points: Sequence[Point]) -> str:
        return " ".join(f"{x(number)},{y(ratio)}" for number, ratio in points)

    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="eager time over ported time, to N steps">'
    yield from _draw_axes(steps, x, y, limits=(10**low, 10**high))
    ends = [(steps[-1], 1.0), (steps[0], 1.0)]
    yield f'<polygon points="{join([*allowed, *ends])}" fill="#1a7f43" fill-opacity="0.14"/>'
    yield f'<polyline points="{join(ends)}" stroke="{EAGER_COLOUR}" stroke-width="1.5" fill="none"/>'
    edge = x(steps[-1]) + 10
    labels: List[Tuple[float, str, str]] = [(y(1.0), EAGER_COLOUR, "eager = 1")]
    for side in CURVE_SIDES:
        colour = _COLOURS[side]
        found = [(number, ratio) for number, ratio in zip(steps, curve[side]["ratios"]) if ratio is not None]
        spread = [(n, ratio["low"]) for n, ratio in found] + [(n, ratio["high"]) for n, ratio in reversed(found)]
        medians = [(number, ratio["median"]) for number, ratio in found]
        yield f"<g><title>{side} cache</title>"
        yield f'<polygon points="{join(spread)}" fill="{colour}" fill-opacity="0.18"/>'
        yield f'<polyline points="{join(medians)}" stroke="{colour}" stroke-width="2" fill="none"/>'
        yield from (f'<circle cx="{x(number)}" cy="{y(ratio)}" r="3" fill="{colour}"/>' for number, ratio in medians)
        yield from _draw_switches(curve[side], colour, x, steps)
        yield "</g>"
        labels += [(y(medians[-1][1]), colour, f"{side} cache")] if medians else []
    for place, colour, text in _spread_labels(labels):
        yield f'<text x="{edge}" y="{place + 4}" fill="{colour}">{text}</text>'
    yield "</svg>"
    yield (
        '<p class="quiet">eager time / ported time until N steps are done, above 1 the port is ahead; medians and '
        'extent of the processes; <span class="ok">&#9632;</span> at most 5 % plus 0.3 s behind eager; dashed: '
        "another engine from here on</p>"
    )


def _find_allowed(curve: Plain) -> List[Point]:
    """List what the ratio has to be above for a port that is no more than 5 % and 0.3 s behind."""
    medians = [interval["median"] for interval in curve["eager"]["seconds"]]
    return [(number, seconds / allow_seconds(seconds)) for number, seconds in zip(curve["steps"], medians)]


def _draw_axes(
    steps: Sequence[int], x: Callable[[float], float], y: Callable[[float], float], *, limits: Tuple[float, float]
) -> Iterator[str]:
    floor, right = _HEIGHT - _BOTTOM, x(steps[-1])
    for number in steps:
        yield f'<path d="M{x(number)} {_TOP}V{floor}" stroke="#eef1f4"/>'
        yield f'<text x="{x(number)}" y="{floor + 17}" text-anchor="middle">{number:,}</text>'
    for tick in _TICKS:
        if limits[0] <= tick <= limits[1]:
            yield f'<path d="M{_LEFT} {y(tick)}H{right}" stroke="#eef1f4"/>'
            yield f'<text x="{_LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>'
    yield f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">steps</text>'


def _draw_switches(side: Plain, colour: str, x: Callable[[float], float], steps: Sequence[int]) -> Iterator[str]:
    """Mark where a process got another engine."""
    for number, run in enumerate(side["engines"], start=1):
        for engine in run[1:]:
            where = x(min(max(engine["steps"], steps[0]), steps[-1]))
            after = f"after {write_seconds(engine['seconds'])}, process {number}"
            yield f"<g><title>{escape(engine['name'])} from step {engine['steps']:,} on, {after}</title>"
            yield (
                f'<path d="M{where} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="{colour}" stroke-dasharray="3 3" '
                'stroke-width="1.5"/></g>'
            )


def _spread_labels(labels: Sequence[Tuple[float, str, str]], gap: float = 16.0) -> Iterator[Tuple[float, str, str]]:
    """Move names apart that would lie on each other."""
    last = -math.inf
    for place, colour, text in sorted(labels):
        last = max(place, last + gap)
        yield round(last, 1), colour, text
