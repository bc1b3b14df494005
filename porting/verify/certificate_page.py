"""A certificate as one HTML page that needs nothing else: the verdict, table and pictures, place, surroundings."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Iterator, Mapping, Sequence, Tuple

from porting.support.html_pages import mark_up, write_page, write_source
from porting.verify.certificate import (
    Certificate,
    Location,
    PrecisionVerdict,
    Verdict,
    describe_extent,
    describe_location,
    describe_measured,
    list_rows,
)
from porting.verify.certificate_pictures import (
    draw_gradients,
    draw_loss_distances,
    draw_losses,
    draw_rates,
    list_worst_gradients,
)

__all__ = ["write_certificate_page"]

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

_COLOURS = {Verdict.PASS: "ok", Verdict.FAIL: "no", Verdict.NOT_COMPARED: "quiet"}
_MOST_VALUES = 8


def write_certificate_page(certificate: Certificate) -> str:
    """Write the page of a certificate."""
    title = f"{certificate.verdict.value}: {certificate.program or 'a port next to plain PyTorch'}"
    return write_page(title, _write_body(certificate), style=_STYLE)


def _write_body(certificate: Certificate) -> Iterator[str]:
    program = f"<code>{escape(certificate.program)}</code>" if certificate.program else "The port"
    yield f"<h1>{program} next to plain PyTorch</h1>"
    if certificate.sensitivity is not None:
        yield f"<p>{mark_up(str(certificate.sensitivity))}</p>"
    colour = _COLOURS.get(certificate.verdict, "odd")
    yield f'<p class="verdict {colour}"><b>{certificate.verdict.value}</b>{mark_up(certificate.reason)}</p>'
    yield f'<p class="quiet">{mark_up(describe_extent(certificate))}</p>'
    if certificate.first is not None or certificate.location is not None:
        yield from _write_fault(certificate)
    yield from (f"<p>{mark_up(note)}</p>" for note in certificate.notes)
    if certificate.kinds:
        yield "<h2>What was compared</h2>"
        yield from _write_kinds(certificate)
    yield from _write_picture("Loss", [*draw_losses(certificate.curves), *draw_loss_distances(certificate.curves)])
    yield from _write_gradients(certificate)
    yield from _write_picture("Learning rate", draw_rates(certificate.curves))
    if certificate.precision is not None:
        yield from _write_precision(certificate.precision)
    for name, values in (
        ("Surroundings", certificate.surroundings),
        ("Settings", certificate.settings),
        ("Hashes (SHA-256)", certificate.hashes),
    ):
        if values:
            yield f"<h2>{name}</h2>"
            yield from _write_named(_flatten_values(values))


def _write_fault(certificate: Certificate) -> Iterator[str]:
    yield '<h2>Where it begins</h2><div class="place">'
    if certificate.first is not None:
        yield f"<p>{mark_up(describe_measured(certificate.first))}</p>"
    if certificate.location is not None:
        yield from _write_location(certificate.location)
    yield "</div>"


def _write_location(location: Location) -> Iterator[str]:
    yield from _write_named((name, text) for name, text in describe_location(location) if text)
    if location.place is not None:
        yield from write_source(location.place)
    if location.reproduction:
        yield "<details open><summary>a program that shows it alone</summary>"
        yield f"<pre>{escape(location.reproduction)}</pre></details>"


def _write_kinds(certificate: Certificate) -> Iterator[str]:
    header, *rows = list_rows(certificate.kinds)
    yield '<div class="scroll"><table class="kinds">'
    yield f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in header)}</tr>"
    for kind, row in zip(certificate.kinds, rows):
        colour = _COLOURS.get(kind.verdict, "odd")
        cells = [f'<td class="{colour}">{escape(row[0])}</td>', *(f"<td>{mark_up(text)}</td>" for text in row[1:])]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"
    yield (
        '<p class="quiet">of band: the largest distance from plain PyTorch, in units of its noise band, which is how '
        "far rounding alone leads; up to 1 is inside</p>"
    )


def _write_gradients(certificate: Certificate) -> Iterator[str]:
    errors = certificate.gradient_errors
    yield from _write_picture("Gradients of the first step", draw_gradients(errors))
    num_left_out = len(errors) - len(list_worst_gradients(errors))
    if num_left_out:
        yield f'<p class="quiet">{num_left_out:,} parameters that fill less of their band are not shown</p>'
    if errors:
        yield '<p class="quiet">dots: distance from plain PyTorch; bars: noise band; both as shares of the gradient</p>'


def _write_precision(precision: PrecisionVerdict) -> Iterator[str]:
    colour = "ok" if precision.explains else "no"
    yield f"<h2>{escape(precision.precision)}</h2>"
    yield f'<p class="{colour}">{mark_up(precision.text)}</p>'
    if precision.loss_scale is not None:
        yield f"<p>The loss scale that would fit: {precision.loss_scale:g}</p>"
    names = list(dict.fromkeys(name for values in precision.layers.values() for name in values))
    if not names:
        return
    yield f'<div class="scroll"><table><tr><th>layer</th>{"".join(f"<th>{escape(name)}</th>" for name in names)}</tr>'
    for layer, values in precision.layers.items():
        cells = "".join(f"<td>{values[name]:.3g}</td>" if name in values else "<td></td>" for name in names)
        yield f"<tr><td>{escape(layer or 'the model')}</td>{cells}</tr>"
    yield "</table></div>"


def _write_picture(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Write a picture with its title; nothing where there is nothing to draw."""
    drawn = list(lines)
    if drawn:
        yield f'<h2>{escape(title)}</h2><div class="scroll">'
        yield from drawn
        yield "</div>"


def _write_named(rows: Iterable[Tuple[str, Any]]) -> Iterator[str]:
    yield '<table class="named">'
    yield from (f"<tr><td>{escape(str(name))}</td><td>{mark_up(_show_value(value))}</td></tr>" for name, value in rows)
    yield "</table>"


def _flatten_values(values: Mapping[str, Any], before: str = "") -> Iterator[Tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten_values(value, f"{before}{name}: ")
        else:
            yield f"{before}{name}", value


def _show_value(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f" and {len(value) - _MOST_VALUES} more" if len(value) > _MOST_VALUES else ""
        return ", ".join(map(_show_value, value[:_MOST_VALUES])) + more
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
