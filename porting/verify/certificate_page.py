"""Write a certificate as one HTML page that needs nothing else: verdict, table, pictures, place and surroundings.

`porting verify --html` uses it.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Mapping, Sequence, Tuple

from porting.diagnostics import PortingError, require_extra
from porting.support.figures import require_matplotlib
from porting.support.html_pages import mark_up, write_page, write_source
from porting.verify.certificate import (
    Certificate,
    Verdict,
    describe_extent,
    describe_location,
    describe_measured,
    iter_rows,
)
from porting.verify.certificate_pictures import (
    draw_gradients,
    draw_loss_distances,
    draw_losses,
    draw_rates,
    list_worst_gradients,
)
from porting.verify.surroundings import flatten_values

__all__ = ["write_certificate_page"]

_STYLE = """
.verdict { font-size: 1.15rem; } .verdict.odd { border-color: var(--warn); } .odd { color: var(--warn); }
.verdict b { font-size: 1.35rem; margin-right: .5rem; }
.scroll { overflow-x: auto; } .scroll svg { width: 100%; max-width: 44rem; display: block; }
.named td, .kinds th:nth-child(-n+2), .kinds td:nth-child(-n+2), .kinds th:nth-child(n+6), .kinds td:nth-child(n+6)
  { text-align: left; }
.kinds td:last-child, .named td:last-child { white-space: normal; overflow-wrap: anywhere; }
.kinds td:last-child { min-width: 12rem; } .named td:first-child { width: 14rem; vertical-align: top; }
.place { border-left: 4px solid #b3261e; padding: .1rem 1rem; background: var(--block); }
@media (max-width: 40rem) { .named td:first-child { width: auto; white-space: normal; } }
@media print { .scroll { overflow: visible; } }
"""

_TEMPLATE = Path(__file__).with_name("certificate.html.jinja")
_COLOURS = {Verdict.PASS: "ok", Verdict.FAIL: "no", Verdict.NOT_COMPARED: "quiet"}
_MOST_VALUES = 8


def write_certificate_page(certificate: Certificate) -> str:
    """Write the page of a certificate; raises PortingError X001 where jinja2, which torch needs too, is missing."""
    jinja = require_extra("jinja2", extra="bench", message="a page is asked for, and jinja2 is not installed")
    settings = jinja.Environment(autoescape=True, trim_blocks=True)
    settings.filters.update(colour=lambda verdict: _COLOURS.get(verdict, "odd"), marked=mark_up, shown=_show_value)
    header, *rows = iter_rows(certificate.kinds)
    pictures, lacking = _draw_pictures(certificate)
    errors, location, precision = certificate.gradient_errors, certificate.location, certificate.precision
    body = settings.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        it=certificate,
        extent=describe_extent(certificate),
        begins="" if certificate.first is None else describe_measured(certificate.first),
        location=[] if location is None else [pair for pair in describe_location(location) if pair[1]],
        source="" if location is None or location.place is None else "".join(write_source(location.place)),
        header=header,
        rows=list(zip(certificate.kinds, rows)),
        pictures=pictures,
        lacking=lacking,
        num_left_out=len(errors) - len(list_worst_gradients(errors)) if pictures else 0,
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


def _draw_pictures(certificate: Certificate) -> Tuple[Mapping[str, str], str]:
    """Draw the pictures, by what they show; none where there is no matplotlib, and what is to be done about it."""
    curves = certificate.curves
    try:
        require_matplotlib()
    except PortingError as error:
        return {}, "; ".join(["there are no pictures", *error.finding.help[:1]])
    return {
        "losses": draw_losses(curves),
        "distances": draw_loss_distances(curves),
        "gradients": draw_gradients(certificate.gradient_errors),
        "rates": draw_rates(curves),
    }, ""


def _show_value(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f" and {len(value) - _MOST_VALUES} more" if len(value) > _MOST_VALUES else ""
        return ", ".join(map(_show_value, value[:_MOST_VALUES])) + more
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
