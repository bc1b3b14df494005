"""The frame of a picture, as SVG: axes that are logarithmic or linear, grid lines, names at the right edge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Callable, Iterator, List, Sequence, Tuple

__all__ = ["Frame", "Label", "Point", "list_even_ticks", "list_ticks"]

Point = Tuple[float, float]
Label = Tuple[float, str, str]
"""A height in the picture, a colour and a text."""

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 340, 70, 140, 14, 40
_MARGIN = 10**0.05
_LINEAR_MARGIN = 0.05
_MOST_TICKS = 10
_LEAST_GAP = 16.0


@dataclass(frozen=True)
class Frame:
    """A frame for x from `first` to `last` and y from `low` to `high`, with a margin above and below."""

    first: float
    last: float
    low: float
    high: float
    is_log_x: bool = True
    is_log_y: bool = True

    @classmethod
    def of(cls, numbers: Sequence[float], values: Sequence[float]) -> Frame:
        """Make the frame that holds all of them, both axes logarithmic."""
        return cls(min(numbers), max(numbers), min(values) / _MARGIN, max(values) * _MARGIN)

    @classmethod
    def of_steps(cls, num_steps: int, values: Sequence[float], *, is_log_y: bool = False) -> Frame:
        """Make the frame of values by step, from 1 on; steps are on a linear axis."""
        low, high = min(values), max(values)
        if is_log_y:
            return cls(1, max(num_steps, 2), low / _MARGIN, high * _MARGIN, is_log_x=False)
        margin = _LINEAR_MARGIN * (high - low) or abs(high) * _LINEAR_MARGIN or 1.0
        return cls(1, max(num_steps, 2), low - margin, high + margin, is_log_x=False, is_log_y=False)

    def x(self, number: float) -> float:
        """Return how far from the left edge a number is; those beyond the frame are at its edge."""
        number = min(max(number, self.first), self.last)
        share = _find_share(number, self.first, self.last, is_log=self.is_log_x) if self.last > self.first else 0.0
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        """Return how far from the top a value is."""
        share = 1.0 - _find_share(value, self.low, self.high, is_log=self.is_log_y)
        return round(_TOP + share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def join(self, points: Sequence[Point]) -> str:
        """Write the places of points, as lines and areas take them."""
        return " ".join(f"{self.x(number)},{self.y(value)}" for number, value in points)

    def open(self, described: str) -> str:
        """Begin the picture."""
        return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(described)}">'

    def draw_axes(
        self, numbers: Sequence[int], ticks: Sequence[float], *, title: str, write: Callable[[float], str]
    ) -> Iterator[str]:
        """Draw a grid line at each number and at each tick, with their names."""
        floor, right = _HEIGHT - _BOTTOM, self.x(self.last)
        for number in numbers:
            yield f'<path d="M{self.x(number)} {_TOP}V{floor}" stroke="#eef1f4"/>'
            yield f'<text x="{self.x(number)}" y="{floor + 17}" text-anchor="middle">{number:,}</text>'
        for tick in ticks:
            yield f'<path d="M{_LEFT} {self.y(tick)}H{right}" stroke="#eef1f4"/>'
            yield f'<text x="{_LEFT - 8}" y="{self.y(tick) + 4}" text-anchor="end">{write(tick)}</text>'
        yield f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(title)}</text>'

    def draw_line(
        self, points: Sequence[Point], colour: str, *, dashes: str = "", has_marks: bool = True
    ) -> Iterator[str]:
        """Draw a line, with a mark at each point."""
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        yield f'<polyline points="{self.join(points)}" stroke="{colour}" stroke-width="2" fill="none"{style}/>'
        for number, value in points if has_marks else ():
            yield f'<circle cx="{self.x(number)}" cy="{self.y(value)}" r="3" fill="{colour}"/>'

    def draw_labels(self, labels: Sequence[Label]) -> Iterator[str]:
        """Write names at the right edge, apart from each other."""
        ordered = sorted(labels)
        places: List[float] = []
        for place, _colour, _text in ordered:
            places.append(max(place, places[-1] + _LEAST_GAP) if places else place)
        # not below the floor, where numbers stand
        lowest = _HEIGHT - _BOTTOM - 4.0
        for index in reversed(range(len(places))):
            places[index] = min(places[index], lowest)
            lowest = places[index] - _LEAST_GAP
        for place, (_place, colour, text) in zip(places, ordered):
            yield f'<text x="{self.x(self.last) + 10}" y="{round(place + 4, 1)}" fill="{colour}">{escape(text)}</text>'


def list_ticks(low: float, high: float) -> List[float]:
    """List what lies between two values of 1, 2, 5, 10, ..., or only powers of 10 where those are many.

    >>> list_ticks(0.3, 11.0), list_ticks(0.0002, 2000.0)
    ([0.5, 1.0, 2.0, 5.0, 10.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    """
    factors = (1, 2, 5) if high / low < 1e4 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = (float(f"{factor}e{power}") for power in powers for factor in factors)
    return [tick for tick in ticks if low <= tick <= high]


def list_even_ticks(low: float, high: float) -> List[float]:
    """List at most ten round numbers from `low` to `high`, as far from each other as 1, 2, 5, 10, ...

    >>> list_even_ticks(1, 50), list_even_ticks(0.11, 0.32)
    ([5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0], [0.15, 0.2, 0.25, 0.3])
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if (high - low) / (factor * power) <= _MOST_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _find_share(value: float, low: float, high: float, *, is_log: bool) -> float:
    """Return how far between two values a third one is."""
    if is_log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
