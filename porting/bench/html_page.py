"""This module writes the results of a run as one self-contained HTML page.

jinja2 fills the template `page.html.jinja` with charts, tables and details.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Sequence

from porting.bench.against_pages import AGAINST_TITLE, list_way_rows, tell_ways
from porting.bench.charts import draw_curve, draw_growth, draw_speed_ups, require_matplotlib
from porting.bench.curve_pages import list_curve_rows, tell_curve
from porting.bench.growth import explain_slope, find_growths, list_growth_rows, name_growth
from porting.bench.pages import lay_out_result, list_rows, name_case, name_cases
from porting.diagnostics import require_extra
from porting.executables.settings import format_bytes
from porting.support.html_pages import write_page

__all__ = ["require_page_makers", "write_html"]

Plain = Mapping[str, Any]

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
# its table is wide
_STYLE = """
body { max-width: 82rem; } th, td { padding: .3rem .45rem; }
svg { display: block; width: 100%; max-width: 36rem; }
"""


def require_page_makers() -> Any:
    """Import jinja2 and matplotlib, and return the former; raises PortingError X001 where one is not installed."""
    require_matplotlib()
    return require_extra("jinja2", extra="bench", message="a page is asked for, and jinja2 is not installed")


def write_html(results: Plain, *, comparison: Sequence[str] = ()) -> str:
    """Write the page; `comparison` are the lines of a comparison with an earlier run."""
    jinja = require_page_makers()
    cases, machine = results["cells"], results["machine"]
    common, titles = name_cases(cases)
    measured = [(title, case) for title, case in zip(titles, cases) if case["result"] is not None]
    curves = [(title, case["result"]["curve"]) for title, case in measured if case["result"]["curve"]["steps"]]
    memory = "" if machine["memory_bytes"] is None else f", {format_bytes(machine['memory_bytes'])}"
    template = jinja.Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    body = template.render(
        facts=[
            f"{machine['processor']}, {machine['num_cores']} cores{memory}, {machine['system']}",
            f"Python {machine['python']}, torch {machine['torch']}, porting {machine['porting']}",
            results["created"] + ("" if results["complete"] else ", not finished"),
        ],
        common=common,
        speed_ups=draw_speed_ups([case for _title, case in measured]) if measured else "",
        figures=list_rows(cases),
        ways_title=AGAINST_TITLE,
        ways=list_way_rows(cases),
        ways_told="\n".join(tell_ways(cases, summary=results["summary"])),
        curves=[
            (
                title,
                draw_curve(curve),
                list_curve_rows(curve),
                "\n".join(f"{name:<6}{text}" for name, text in tell_curve(curve)),
            )
            for title, curve in curves
        ],
        growths=[
            (name_growth(growth), draw_growth(growth), list_growth_rows(growth), explain_slope(growth))
            for growth in find_growths(cases)
        ],
        comparison=comparison,
        details=[(name_case(case), _describe_case(case)) for case in cases],
    )
    return write_page(f"porting bench, {results['created']}", [body], style=_STYLE)


def _describe_case(case: Plain) -> str:
    result = case["result"]
    return f"{case['status']}: {case['reason']}" if result is None else "\n".join(lay_out_result(result))
