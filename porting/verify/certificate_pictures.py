"""Draw losses and learning rates by step, and gradients against their noise bands.

The page of a certificate shows these pictures.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from porting.support.figures import GREY, write_svg
from porting.verify.certificate import Curves, Measured

__all__ = ["draw_gradients", "draw_loss_distances", "draw_losses", "draw_rates", "list_worst_gradients"]

GradientErrors = Mapping[str, Tuple[float, float, float]]

_PORTED, _REFERENCE, _BAND, _OUTSIDE = "#3a7ebf", "#c0602b", "#2a9155", "#d0453c"
# from here on a curve falls by so much that its end could not be seen on a linear axis
_LOG_RATIO = 30.0
_MOST_BARS, _MOST_LETTERS = 40, 42
_WIDTH, _HEIGHT, _ROW = 9.6, 3.4, 0.23
_MARGIN, _LINEAR_MARGIN, _DECADES = 10**0.05, 0.05, 0.5
# magnitudes that are shown: those of float64, with room for shares of them
_LEAST, _MOST = 1e-30, 1e30


class _Line(NamedTuple):
    """A curve: its name, colour, style and values by step."""

    name: str
    colour: str
    style: str
    values: Sequence[float]


def draw_losses(curves: Curves) -> str:
    """Draw the losses of plain PyTorch, of the port and in float64, over the band that rounding alone leads through."""
    lines = [
        _Line("plain PyTorch", GREY, "-", curves.plain),
        _Line("float64", _REFERENCE, ":", curves.reference),
        _Line("port", _PORTED, "--", curves.ported),
    ]
    return _draw_lines(lines, list(zip(curves.lowest, curves.highest)), described="losses by step")


def draw_loss_distances(curves: Curves) -> str:
    """Draw how far the losses of the port and in float64 are from plain PyTorch, and how far rounding alone leads."""

    def measure(values: Sequence[float]) -> List[float]:
        # a logarithmic axis has no place for zero
        return [abs(value - plain) or math.nan for value, plain in zip(values, curves.plain)]

    lines = [
        _Line("float64", _REFERENCE, ":", measure(curves.reference)),
        _Line("port", _PORTED, "--", measure(curves.ported)),
    ]
    edges = zip(curves.lowest, curves.highest, curves.plain)
    reached = [max(abs(low - plain), abs(high - plain)) for low, high, plain in edges]
    shown = [value for line in lines for value in line.values if _is_shown(value)]
    band = [(min([*shown, edge]), edge) if edge else (math.nan, math.nan) for edge in reached]
    return _draw_lines(lines, band, described="distance of losses by step", is_log=True)


def draw_rates(curves: Curves) -> str:
    """Draw the learning rates that plain PyTorch and the port had."""
    lines = [_Line("schedule", GREY, "-", curves.plain_rates), _Line("port", _PORTED, "--", curves.ported_rates)]
    return _draw_lines(lines, [], described="learning rates by step")


def _draw_lines(
    lines: Sequence[_Line], band: Sequence[Tuple[float, float]], *, described: str, is_log: bool = False
) -> str:
    shown = [value for line in lines for value in line.values if _is_shown(value)]
    if not shown:
        return ""
    edges = [(step, *pair) for step, pair in enumerate(band, 1) if all(map(_is_shown, pair)) and pair[0] <= pair[1]]
    # a band that is much wider than the curves would leave nothing to see of them
    extent = max(shown) - min(shown) or abs(max(shown)) or 1.0
    low, high = (math.inf, -math.inf) if is_log else (max(shown) + extent, min(shown) - extent)
    ends = [end for _step, *pair in edges for end in pair]
    values = [*shown, *(ends if is_log else (min(max(end, high), low) for end in ends))]
    low, high = min(values), max(values)
    is_log = is_log or (low > 0 and high > _LOG_RATIO * low)

    def draw(figure: Any) -> None:
        figure.set_size_inches(_WIDTH, _HEIGHT)
        axes = figure.subplots()
        if edges:
            settings = {"color": _BAND, "alpha": 0.2, "linewidth": 0, "label": "where rounding alone leads"}
            axes.fill_between(*zip(*edges), gid="band", **settings)
        for number, line in enumerate(lines):
            places = [value if _is_shown(value) else math.nan for value in line.values]
            alone = [place for place in range(len(places)) if _is_alone(place, places)]
            style: Dict[str, Any] = {"color": line.colour, "linestyle": line.style, "marker": "o", "markersize": 4}
            axes.plot(
                range(1, len(places) + 1), places, markevery=alone, gid=f"line-{number}", label=line.name, **style
            )
        if is_log:
            axes.set_yscale("log")
            axes.set_ylim(low / _MARGIN, high * _MARGIN)
        else:
            margin = _LINEAR_MARGIN * ((high - low) or abs(high)) or 1.0
            axes.set_ylim(low - margin, high + margin)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("step")
        figure.legend(loc="outside lower center", ncols=4)

    return write_svg(draw, described, {f"line-{number}": line.name for number, line in enumerate(lines)})


def _is_shown(value: float) -> bool:
    return math.isfinite(value) and abs(value) < _MOST and (value == 0 or abs(value) > _LEAST)


def _is_alone(place: int, values: Sequence[float]) -> bool:
    """Tell whether a value has no neighbour that a line could lead to."""
    around = [values[other] for other in (place - 1, place + 1) if 0 <= other < len(values)]
    return not math.isnan(values[place]) and all(map(math.isnan, around))


# -- gradients ---------------------------------------------------------------------------------------------------------


def list_worst_gradients(errors: GradientErrors) -> List[str]:
    """List the parameters that are shown, in their order: all, or those whose gradients fill most of their band."""
    worst = sorted(errors, key=lambda name: -_measure_gradient(name, errors[name]).factor)[:_MOST_BARS]
    return [name for name in errors if name in worst]


def draw_gradients(errors: GradientErrors) -> str:
    """Draw for each parameter the error of its gradient, relative to the gradient, over its noise band."""
    names = list_worst_gradients(errors)
    shares = [_find_shares(*errors[name]) for name in names]
    seen = [share for pair in shares for share in pair if _LEAST < share < _MOST]
    if not seen:
        return ""
    low, high = 10 ** (math.log10(min(seen)) - _DECADES), 10 ** (math.log10(max(seen)) + _DECADES)
    measured = [_measure_gradient(name, errors[name]) for name in names]
    said = (f"{_clean_name(one.name)}: {one.factor:.2g} of its noise band" for one in measured)
    titles = {f"gradient-{row}": text for row, text in enumerate(said)}

    def draw(figure: Any) -> None:
        figure.set_size_inches(_WIDTH, 0.8 + _ROW * len(names))
        axes = figure.subplots()
        # what is beyond the axis, or no number, lies at its edge
        found, bands = ([min(max(pair[side], low), high) for pair in shares] for side in (0, 1))
        rows = range(len(names))
        axes.barh(rows, bands, left=0, height=0.6, color=_BAND, alpha=0.22)
        for row, one in enumerate(measured):
            colour = _PORTED if one.is_inside else _OUTSIDE
            axes.plot(found[row], row, "o", color=colour, markersize=5, clip_on=False, gid=f"gradient-{row}")
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(rows, [_shorten_name(name) for name in names], parse_math=False)
        axes.set_xlabel("of the gradient")

    return write_svg(draw, "error of each gradient against its noise band", titles)


def _shorten_name(name: str) -> str:
    shown = _clean_name(name)
    return shown if len(shown) <= _MOST_LETTERS else "\N{HORIZONTAL ELLIPSIS}" + shown[1 - _MOST_LETTERS :]


def _clean_name(name: str) -> str:
    """Return a name without what a page cannot hold; no parameter is called so."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _measure_gradient(name: str, error: Tuple[float, float, float]) -> Measured:
    return Measured("gradient", name, 1, *error)


def _find_shares(distance: float, scale: float, band: float) -> Tuple[float, float]:
    """Return error and band as shares of the gradient; what is no number lies at the right edge."""
    unit = scale if math.isfinite(scale) and scale > 0 else 1.0
    shares = (value / unit if math.isfinite(value) else math.inf for value in (distance, band))
    return next(shares), next(shares)
