"""Growth as a picture for HTML pages: the seconds of each figure over the size, both axes logarithmic."""

from __future__ import annotations

from typing import Iterator, List

from .frames import Frame, Label, list_ticks
from .growth import Growth
from .pages import write_seconds

__all__ = ["draw_growth"]

_COLOURS = ("#2463a8", "#c0602b", "#1a7f43", "#7a4fa3", "#b3261e", "#1c2733")
_REFERENCE = "#8a8f98"


def draw_growth(growth: Growth) -> Iterator[str]:
    """Draw a line for each figure; the dashed one grows in proportion to the size."""
    lines = {
        title: [(size, value) for size, value in zip(growth.sizes, seconds) if value]
        for title, seconds in growth.seconds.items()
    }
    values = [value for points in lines.values() for _size, value in points]
    if not values:
        return
    first, last = growth.sizes[0], growth.sizes[-1]
    # in the middle of the picture, where lines of figures can be seen against it
    middle = (min(values) * max(values)) ** 0.5 * (first / last) ** 0.5
    linear = [(first, middle), (last, middle * last / first)]
    frame = Frame.of(growth.sizes, [*values, *(value for _size, value in linear)])
    yield frame.open(f"seconds over {growth.grown}")
    ticks = list_ticks(frame.low, frame.high)
    yield from frame.draw_axes(growth.sizes, ticks, title=growth.grown.replace("_", " "), write=write_seconds)
    yield f'<polyline points="{frame.join(linear)}" stroke="{_REFERENCE}" stroke-dasharray="5 4" fill="none"/>'
    labels: List[Label] = [(frame.y(linear[-1][1]), _REFERENCE, "linear")]
    for colour, (title, points) in zip(_COLOURS, lines.items()):
        if points:
            yield f"<g><title>{title}</title>"
            yield from frame.draw_line(points, colour)
            yield "</g>"
            labels.append((frame.y(points[-1][1]), colour, title))
    yield from frame.draw_labels(labels)
    yield "</svg>"
