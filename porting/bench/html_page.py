"""This module writes the results of a run as one self-contained HTML page.

jinja2 fills the template `page.html.jinja` with the tables that are printed as well, with charts beside them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from porting.bench.case_tables import list_rows, list_way_tables
from porting.bench.charts import draw_curve, draw_growth, draw_roofline, draw_speed_ups, require_matplotlib
from porting.bench.curve import list_curves, make_curve_table
from porting.bench.growth import list_growths, make_growth_table
from porting.bench.pages import iter_facts, list_candidate_rows, list_step_rows, write_headline
from porting.bench.report import BenchReport
from porting.bench.tables import Plain, Table, name_case, name_cases
from porting.diagnostics import require_extra
from porting.executables.settings import format_bytes
from porting.support.html_pages import write_page, write_table

__all__ = ["require_page_makers", "write_html", "write_result_page"]

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
# its table is wide; what stands below one is prose, which a telephone breaks into lines
_STYLE = """
body { max-width: 82rem; } th, td { padding: .3rem .45rem; }
svg { display: block; width: 100%; max-width: 36rem; }
@media (max-width: 48rem) { th, td { padding: .2rem .3rem; font-size: 13px; } }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 0 1.5rem; }
.pictures > * { min-width: 0; } h3 { font-size: 1rem; }
pre.notes, .facts td { white-space: pre-wrap; }
.facts td { text-align: left; } .facts th, .facts td { vertical-align: top; border: 0; padding: .1rem .45rem; }
"""


_Section = Tuple[str, str, Sequence[Tuple[str, Table]]]
"""A heading, what is said of all tables below it, and each of them with its chart, which may be empty."""


def require_page_makers() -> ModuleType:
    """Import jinja2 and matplotlib, and return the former; raises PortingError X001 where one is not installed."""
    require_matplotlib()
    return require_extra("jinja2", extra="bench", message="a page is asked for, and jinja2 is not installed")


def write_html(results: Plain, *, comparison: Optional[Table] = None) -> str:
    """Write the page; `comparison` is the table of a comparison with an earlier run."""
    jinja = require_page_makers()
    cases, machine = results["cells"], results["machine"]
    measured = [case for case in cases if case["result"] is not None]
    memory = "" if machine["memory_bytes"] is None else f", {format_bytes(machine['memory_bytes'])}"
    template = jinja.Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    body = template.render(
        facts=[
            f"{machine['processor']}, {machine['num_cores']} cores{memory}, {machine['system']}",
            f"Python {machine['python']}, torch {machine['torch']}, porting {machine['porting']}",
            results["created"] + ("" if results["complete"] else ", not finished"),
        ],
        common=name_cases(cases)[0],
        speed_ups=draw_speed_ups(measured) if measured else "",
        sections=[section for section in _iter_sections(results, comparison) if section[-1]],
        details=map(_describe_case, cases),
    )
    return write_page(f"porting bench, {results['created']}", [body], style=_STYLE)


def write_result_page(report: BenchReport) -> str:
    """Write the page of one workload: its times, its facts, and the engines that were candidates."""
    result = report.to_dict()
    body = [
        f"<p>{escape(write_headline(result))}</p>",
        *write_table(list_step_rows(result)),
        *write_table(list(iter_facts(result)), kind="facts"),
        *(write_table(list_candidate_rows(result)) if result["candidates"] else []),
    ]
    return write_page(f"porting bench, {report.name}", body, style=_STYLE)


_CURVE = (
    "First call, compiling and what runs in the background count. Each process is a fresh one; the cache of "
    "executables is empty (cold), or has what the step needs (warm). Charts show medians and extents: above 1 "
    "the port is ahead, and from a dashed line on another engine runs it."
)
_ROOFLINE = (
    "The line is the most that products of matrices and copies attain on this machine: memory holds a step back on its "
    "slope, computing on its flat part. Operations and bytes are those of eager's operators."
)


def _iter_sections(results: Plain, comparison: Optional[Table]) -> Iterator[_Section]:
    cases = results["cells"]
    roofline = draw_roofline([case for case in cases if case["result"] is not None])
    yield "What the machine allows", _ROOFLINE, [(roofline, Table(""))] if roofline else []
    curves = [(draw_curve(curve), make_curve_table(curve, name=name)) for name, curve in list_curves(cases)]
    yield "Time to N steps", _CURVE, curves
    yield "Growth", "", [(draw_growth(growth), make_growth_table(growth)) for growth in list_growths(cases)]
    yield "Figures", "", [("", Table("", list_rows(cases)))]
    ways = list_way_tables(cases, summary=results["summary"])
    yield "Over the best way without the port", "", [("", table) for table in ways]
    yield "Against an earlier run", "", [] if comparison is None else [("", comparison)]


def _describe_case(case: Plain) -> Dict[str, Any]:
    """Give the template all that is said of one case."""
    name, result = name_case(case), case["result"]
    if result is None:
        return {"name": name, "headline": f"{case['status']}: {case['reason']}"}
    told = {"headline": write_headline(result), "steps": list_step_rows(result), "facts": list(iter_facts(result))}
    return {"name": name, **told, "candidates": list_candidate_rows(result) if result["candidates"] else []}
