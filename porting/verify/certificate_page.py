"""A certificate as one HTML page that needs nothing else: the verdict, table and pictures, place, surroundings."""

from __future__ import annotations

import itertools
import math
from html import escape
from pathlib import Path
from typing import Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from porting.diagnostics import require_extra
from porting.support.html_pages import mark_up, write_page, write_source
from porting.verify.certificate import (
    Certificate,
    Curves,
    Measured,
    Verdict,
    describe_extent,
    describe_location,
    describe_measured,
    list_rows,
)
from porting.verify.frames import Frame, Label, Point, list_even_ticks, list_ticks
from porting.verify.surroundings import flatten_values

__all__ = [
    "draw_gradients",
    "draw_loss_distances",
    "draw_losses",
    "draw_rates",
    "list_worst_gradients",
    "write_certificate_page",
]

_STYLE = """
.verdict { font-size: 1.15rem; border-left: 6px solid #8a8f98; }
.verdict.ok { border-color: #1a7f43; } .verdict.no { border-color: #b3261e; } .verdict.odd { border-color: #b26a00; }
.odd { color: #b26a00; } .verdict b { font-size: 1.35rem; margin-right: .5rem; }
.scroll { overflow-x: auto; } .scroll svg { min-width: 40rem; display: block; }
.named td, .kinds th:nth-child(-n+2), .kinds td:nth-child(-n+2), .kinds th:nth-child(n+6), .kinds td:nth-child(n+6)
  { text-align: left; }
.kinds td:last-child, .named td:last-child { white-space: normal; overflow-wrap: anywhere; }
.kinds td:last-child { min-width: 12rem; } .named td:first-child { width: 14rem; vertical-align: top; }
.place { border-left: 4px solid #b3261e; padding: .1rem 1rem; background: #fbfcfd; }
@media (max-width: 40rem) { .named td:first-child { width: auto; white-space: normal; } }
@media print { .scroll { overflow: visible; } }
"""

_TEMPLATE = Path(__file__).with_name("certificate.html.jinja")
_COLOURS = {Verdict.PASS: "ok", Verdict.FAIL: "no", Verdict.NOT_COMPARED: "quiet"}
_MOST_VALUES = 8
_PLAIN, _PORTED, _REFERENCE, _BAND = "#8a8f98", "#2463a8", "#c0602b", "#1a7f43"
_INSIDE, _OUTSIDE = "#2463a8", "#b3261e"
# from here on a curve falls by so much that its end could not be seen on a linear axis
_LOG_RATIO = 30.0
_MOST_BARS = 40
_ROW, _LEFT, _PLOT, _WIDTH = 22, 330, 560, 960
_DECADES_BELOW = 0.5
# magnitudes that are shown: those of float64, with room for shares of them
_LEAST_SHARE, _MOST_SHARE = 1e-30, 1e30


def write_certificate_page(certificate: Certificate) -> str:
    """Write the page of a certificate; raises PortingError X001 where jinja2, which torch needs too, is missing."""
    jinja = require_extra("jinja2", extra="bench", message="a page is asked for, and jinja2 is not installed")
    settings = jinja.Environment(autoescape=True, trim_blocks=True)
    settings.filters.update(colour=lambda verdict: _COLOURS.get(verdict, "odd"), marked=mark_up, shown=_show_value)
    header, *rows = list_rows(certificate.kinds)
    errors, location, precision = certificate.gradient_errors, certificate.location, certificate.precision
    body = settings.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        it=certificate,
        extent=describe_extent(certificate),
        begins="" if certificate.first is None else describe_measured(certificate.first),
        location=[] if location is None else [pair for pair in describe_location(location) if pair[1]],
        source="" if location is None or location.place is None else "".join(write_source(location.place)),
        header=header,
        rows=list(zip(certificate.kinds, rows)),
        losses=[*draw_losses(certificate.curves), *draw_loss_distances(certificate.curves)],
        gradients=list(draw_gradients(errors)),
        num_left_out=len(errors) - len(list_worst_gradients(errors)),
        rates=list(draw_rates(certificate.curves)),
        loss_scale=None if precision is None else precision.loss_scale,
        ranges=[] if precision is None else list(dict.fromkeys(itertools.chain(*precision.layers.values()))),
        told=[
            (title, [(": ".join(path), value) for path, value in flatten_values(values)])
            for title, values in (
                ("Surroundings", certificate.surroundings),
                ("Settings", certificate.settings),
                ("Hashes (SHA-256)", certificate.hashes),
            )
        ],
    )
    title = f"{certificate.verdict.value}: {certificate.program or 'a port next to plain PyTorch'}"
    return write_page(title, [body], style=_STYLE)


def _show_value(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f" and {len(value) - _MOST_VALUES} more" if len(value) > _MOST_VALUES else ""
        return ", ".join(map(_show_value, value[:_MOST_VALUES])) + more
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)


# -- pictures ----------------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """A curve: its name, colour, dashes and values by step."""

    name: str
    colour: str
    dashes: str
    values: Sequence[float]


def draw_losses(curves: Curves) -> Iterator[str]:
    """Draw the losses of plain PyTorch, of the port and in float64, over the band that rounding alone leads through."""
    lines = [
        _Line("plain PyTorch", _PLAIN, "", curves.plain),
        _Line("float64", _REFERENCE, "2 3", curves.reference),
        _Line("port", _PORTED, "7 4", curves.ported),
    ]
    band = list(zip(curves.lowest, curves.highest))
    yield from _draw_lines(lines, band, described="losses by step")
    if any(line.values for line in lines):
        band_told = f'; <span style="color:{_BAND}">&#9632;</span> where rounding alone leads' if band else ""
        yield f'<p class="quiet">loss by optimizer step, a mean over its samples{band_told}</p>'


def draw_loss_distances(curves: Curves) -> Iterator[str]:
    """Draw how far the losses of the port and in float64 are from plain PyTorch, and how far rounding alone leads."""

    def measure(values: Sequence[float]) -> List[float]:
        # a logarithmic axis has no place for zero
        return [abs(value - plain) or math.nan for value, plain in zip(values, curves.plain)]

    lines = [
        _Line("float64", _REFERENCE, "2 3", measure(curves.reference)),
        _Line("port", _PORTED, "7 4", measure(curves.ported)),
    ]
    edges = zip(curves.lowest, curves.highest, curves.plain)
    reached = [max(abs(low - plain), abs(high - plain)) for low, high, plain in edges]
    shown = [value for line in lines for value in line.values if _is_shown(value)]
    band = [(min([*shown, edge]), edge) if edge else (math.nan, math.nan) for edge in reached]
    yield from _draw_lines(lines, band, described="distance of losses by step", is_log=True)
    if shown:
        yield '<p class="quiet">the same as distances from plain PyTorch; where there is no line, it is zero</p>'


def draw_rates(curves: Curves) -> Iterator[str]:
    """Draw the learning rates that plain PyTorch and the port had."""
    lines = [_Line("schedule", _PLAIN, "", curves.plain_rates), _Line("port", _PORTED, "7 4", curves.ported_rates)]
    yield from _draw_lines(lines, [], described="learning rates by step")


def _draw_lines(
    lines: Sequence[_Line], band: Sequence[Tuple[float, float]], *, described: str, is_log: bool = False
) -> Iterator[str]:
    shown = [value for line in lines for value in line.values if _is_shown(value)]
    num_steps = max(len(line.values) for line in lines)
    if not shown:
        return
    edges = [edge for pair in band if all(map(_is_shown, pair)) for edge in pair]
    # a band that is much wider than the curves would leave nothing to see of them
    extent = max(shown) - min(shown) or abs(max(shown)) or 1.0
    values = [*shown, *(edges if is_log else (min(max(e, min(shown) - extent), max(shown) + extent) for e in edges))]
    is_log = is_log or (min(values) > 0 and max(values) > _LOG_RATIO * min(values))
    frame = Frame.of_steps(num_steps, values, is_log_y=is_log)
    ticks = list_ticks(frame.low, frame.high) if is_log else list_even_ticks(frame.low, frame.high)
    yield frame.open(described)
    numbers = [1, *(int(tick) for tick in list_even_ticks(1, num_steps) if tick != 1 and tick == int(tick))]
    yield from frame.draw_axes(numbers, ticks, title="step", write="{:g}".format)
    yield from _draw_band(band, frame)
    labels: List[Label] = []
    for line in lines:
        yield f"<g><title>{escape(line.name)}</title>"
        for points in _cut_where_not_finite(line.values):
            yield from frame.draw_line(points, line.colour, dashes=line.dashes, has_marks=len(points) == 1)
            last = points[-1]
        yield "</g>"
        if any(map(_is_shown, line.values)):
            labels.append((frame.y(last[1]), line.colour, line.name))
    yield from frame.draw_labels(labels)
    yield "</svg>"


def _draw_band(band: Sequence[Tuple[float, float]], frame: Frame) -> Iterator[str]:
    pairs = [(step, *pair) for step, pair in enumerate(band, 1) if all(map(_is_shown, pair)) and pair[0] <= pair[1]]
    if not pairs:
        return
    inside = [(step, *(min(max(edge, frame.low), frame.high) for edge in pair)) for step, *pair in pairs]
    edges = [(step, high) for step, _low, high in inside] + [(step, low) for step, low, _high in reversed(inside)]
    yield f'<polygon points="{frame.join(edges)}" fill="{_BAND}" fill-opacity="0.18" stroke="{_BAND}"'
    yield ' stroke-opacity="0.35"/>'


def _cut_where_not_finite(values: Sequence[float]) -> Iterator[List[Point]]:
    """List the pieces of a curve between its values that are no numbers."""
    pieces = itertools.groupby(enumerate(values, 1), key=lambda point: _is_shown(point[1]))
    return (list(piece) for is_shown, piece in pieces if is_shown)


def _is_shown(value: float) -> bool:
    return math.isfinite(value) and abs(value) < _MOST_SHARE and (value == 0 or abs(value) > _LEAST_SHARE)


# -- gradients ---------------------------------------------------------------------------------------------------------

GradientErrors = Mapping[str, Tuple[float, float, float]]


def list_worst_gradients(errors: GradientErrors) -> List[str]:
    """List the parameters that are shown, in their order: all, or those whose gradients fill most of their band."""
    worst = sorted(errors, key=lambda name: -_measure_gradient(name, errors[name]).factor)[:_MOST_BARS]
    return [name for name in errors if name in worst]


def draw_gradients(errors: GradientErrors) -> Iterator[str]:
    """Draw for each parameter the error of its gradient, relative to the gradient, over its noise band."""
    names = list_worst_gradients(errors)
    shares = {name: _find_shares(*errors[name]) for name in names}
    seen = [share for pair in shares.values() for share in pair if _LEAST_SHARE < share < _MOST_SHARE]
    if not seen:
        return
    low, high = (function(map(math.log10, seen)) for function in (min, max))
    low, high = math.floor(low - _DECADES_BELOW), math.ceil(high + _DECADES_BELOW)
    height = _ROW * len(names) + 40

    def x(share: float) -> float:
        place = low if share <= _LEAST_SHARE else high if share >= _MOST_SHARE else math.log10(share)
        return round(_LEFT + _PLOT * (place - low) / (high - low), 1)

    yield f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="error of each gradient against its noise band">'
    every = max(1, math.ceil((high - low) / 8))
    for power in range(low, high + 1, every):
        at = round(_LEFT + _PLOT * (power - low) / (high - low), 1)
        yield f'<path d="M{at} 0V{height - 36}" stroke="#eef1f4"/>'
        yield f'<text x="{at}" y="{height - 18}" text-anchor="middle">1e{power}</text>'
    yield f'<text x="{_LEFT + _PLOT / 2}" y="{height - 3}" text-anchor="middle">of the gradient</text>'
    for row, name in enumerate(names):
        yield from _draw_gradient(name, errors[name], y=row * _ROW + _ROW / 2, places=tuple(map(x, shares[name])))
    yield "</svg>"


def _draw_gradient(
    name: str, error: Tuple[float, float, float], *, y: float, places: Tuple[float, ...]
) -> Iterator[str]:
    found, band = places
    measured = _measure_gradient(name, error)
    colour = _INSIDE if measured.is_inside else _OUTSIDE
    shown = name if len(name) <= 42 else "\N{HORIZONTAL ELLIPSIS}" + name[-41:]
    yield f"<g><title>{escape(name)}: {measured.factor:.2g} of its noise band</title>"
    yield f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end" fill="{colour}">{escape(shown)}</text>'
    yield f'<rect x="{_LEFT}" y="{y - 7}" width="{round(band - _LEFT, 1)}" height="14" fill="{_BAND}"'
    yield f' fill-opacity="0.22"/><circle cx="{found}" cy="{y}" r="4" fill="{colour}"/></g>'


def _measure_gradient(name: str, error: Tuple[float, float, float]) -> Measured:
    return Measured("gradient", name, 1, *error)


def _find_shares(distance: float, scale: float, band: float) -> Tuple[float, float]:
    """Return error and band as shares of the gradient; what is no number lies at the right edge."""
    unit = scale if math.isfinite(scale) and scale > 0 else 1.0
    shares = (value / unit if math.isfinite(value) else math.inf for value in (distance, band))
    return next(shares), next(shares)
