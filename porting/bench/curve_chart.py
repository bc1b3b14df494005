"""The time to N steps as a picture for HTML pages: eager time over ported time, both axes logarithmic."""

from __future__ import annotations

from html import escape
from typing import Any, Iterator, List, Mapping

from .charts import EAGER_COLOUR, PORTED_COLOUR
from .curve import CURVE_SIDES, allow_seconds
from .frames import Frame, Label, Point, list_ticks
from .pages import write_seconds

__all__ = ["draw_curve"]

Plain = Mapping[str, Any]

_COLOURS = {"cold": "#c0602b", "warm": PORTED_COLOUR}


def draw_curve(curve: Plain) -> Iterator[str]:
    """Draw the ratios of a curve as SVG: eager is the line at 1, the band below it what a port may be behind."""
    steps, allowed = curve["steps"], _find_allowed(curve)
    ratios = [ratio for side in CURVE_SIDES for ratio in curve[side]["ratios"] if ratio is not None]
    values = [1.0, *(value for _steps, value in allowed), *(ratio[end] for ratio in ratios for end in ("low", "high"))]
    frame = Frame.of(steps, values)
    yield frame.open("eager time over ported time, to N steps")
    yield from frame.draw_axes(steps, list_ticks(frame.low, frame.high), title="steps", write="{:g}".format)
    ends = [(steps[-1], 1.0), (steps[0], 1.0)]
    yield f'<polygon points="{frame.join([*allowed, *ends])}" fill="#1a7f43" fill-opacity="0.14"/>'
    yield f'<polyline points="{frame.join(ends)}" stroke="{EAGER_COLOUR}" stroke-width="1.5" fill="none"/>'
    labels: List[Label] = [(frame.y(1.0), EAGER_COLOUR, "eager = 1")]
    for side in CURVE_SIDES:
        colour = _COLOURS[side]
        found = [(number, ratio) for number, ratio in zip(steps, curve[side]["ratios"]) if ratio is not None]
        spread = [(n, ratio["low"]) for n, ratio in found] + [(n, ratio["high"]) for n, ratio in reversed(found)]
        medians = [(number, ratio["median"]) for number, ratio in found]
        yield f"<g><title>{side} cache</title>"
        yield f'<polygon points="{frame.join(spread)}" fill="{colour}" fill-opacity="0.18"/>'
        yield from frame.draw_line(medians, colour)
        yield from _draw_switches(curve[side], colour, frame)
        yield "</g>"
        labels += [(frame.y(medians[-1][1]), colour, f"{side} cache")] if medians else []
    yield from frame.draw_labels(labels)
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


def _draw_switches(side: Plain, colour: str, frame: Frame) -> Iterator[str]:
    """Mark where a process got another engine."""
    for number, run in enumerate(side["engines"], start=1):
        for engine in run[1:]:
            after = f"after {write_seconds(engine['seconds'])}, process {number}"
            yield f"<g><title>{escape(engine['name'])} from step {engine['steps']:,} on, {after}</title>"
            yield f"{frame.draw_upright(engine['steps'], colour)}</g>"
