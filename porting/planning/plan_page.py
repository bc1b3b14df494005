"""This module writes a plan as one page of HTML that works offline: memory, modules, stages, speed and remedies.

Parts of bars tell their numbers when the pointer or the focus is on them: the Tab key goes from bar to bar, arrows from
part to part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from ..diagnostics import require_extra
from ..support.html_pages import mark_up, write_page
from .loader_rate import LoaderRate
from .memory_timeline import trace_memory
from .module_places import ModulePlace, place_modules
from .plan_record import Plan
from .plan_text import NAMES, format_fitting, format_mb, format_scaling

__all__ = ["write_plan_page"]

_TEMPLATE = Path(__file__).with_name("plan.html.jinja")
_MOST_ROUNDS = 24
_PHASES = {"forward": "#9ecae9", "backward": "#f58518"}
_RESIDENT, _MODULES = "#79706e", ("#4c78a8", "#9ecae9")
# of all trainings, those that are not drawn at each end
_TAIL, _MOST_COLUMNS = 0.005, 40
_STYLE = """
.chart { position: relative; margin: 1rem 0 2rem; } .row { display: flex; align-items: center; margin: .35rem 0; }
.row > span { flex: 0 0 5.5rem; } .bar { flex: 1; display: flex; height: 1.5rem; background: var(--block); }
.bar i { display: block; height: 100%; min-width: 1px; } .bar i:focus, .grid i:focus { outline: 2px solid var(--ink); }
.limit { position: absolute; top: 0; bottom: 0; border-left: 2px dashed var(--no); pointer-events: none; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1rem; font-size: 13px; }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -.1rem; }
.grid { overflow-x: auto; } .grid .row { margin: 2px 0; } .grid i { flex: 1 0 6px; height: 1.1rem; margin-right: 1px; }
.columns { position: relative; display: flex; align-items: flex-end; height: 10rem; background: var(--block); }
.columns i { display: block; flex: 1 1 0; min-width: 1px; } .columns i:hover, .bar i:hover { filter: brightness(1.2); }
.columns i:focus { outline: 2px solid var(--ink); }
.columns b { position: absolute; left: 0; right: 0; border-top: 2px dashed var(--no); pointer-events: none; }
.scale { flex: 1; position: relative; height: 100%; } .told { min-height: 1.4em; font-size: 13px; }
.present { position: absolute; padding: 0 .3rem; white-space: nowrap; }
.wraps td:first-child { white-space: normal; overflow-wrap: anywhere; } .numbers td { border: 0; padding-bottom: 0; }
.wraps .numbers td:first-child { overflow-wrap: normal; }
@media (max-width: 48rem) { .row > span { flex-basis: 3.2rem; font-size: 12px; }
  .wraps { display: table; } .wraps th, .wraps td { white-space: normal; padding: .3rem; } }
@media print { .bar i { print-color-adjust: exact; } }
"""
_COLOURS = (
    "#4c78a8",
    "#9ecae9",
    "#f58518",
    "#ffbf79",
    "#54a24b",
    "#88d27a",
    "#e45756",
    "#b79a20",
    "#79706e",
    "#bab0ac",
    "#d67195",
)


def write_plan_page(
    plan: Plan, name: str = "the step", *, num_samples: Optional[float] = None, loader: Optional[LoaderRate] = None
) -> str:
    """Write the page of a plan of the program `name`; PortingError X001 without jinja2.

    With `num_samples` it tells how long they take, and with `loader` what the program's loader was measured to give.
    """
    jinja = require_extra("jinja2", extra="bench", message="a page is asked for, and jinja2 is not installed")
    template = jinja.Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    scale = max(plan.target.memory_bytes, plan.high_bytes) * 1.02
    speed = plan.forecast
    body = template.render(
        name=name,
        plan=plan,
        verdict_class={"fits": "ok", "does not fit": "no"}.get(plan.verdict, "quiet"),
        low=f"{plan.low_bytes / plan.target.memory_bytes:.0%}",
        high=f"{plan.high_bytes / plan.target.memory_bytes:.0%}",
        present=format_mb(plan.target.memory_bytes),
        limit=100 * plan.target.memory_bytes / scale,
        bars=[_make_bar(plan, number, scale) for number in range(len(plan.ipus))],
        key=[(colour, NAMES[term]) for term, colour in _colour_terms(plan).items()],
        moments=_list_moments(plan, scale),
        resident_colour=_RESIDENT,
        phases=_PHASES,
        fullest=plan.fullest.ipu,
        planned=format_mb(plan.bytes_per_ipu),
        **_describe_modules(plan),
        training=_describe_training(plan, num_samples) if num_samples and plan.has_speed else None,
        loader=loader,
        stages=list(_iter_stages(plan)),
        rounds=_list_rounds(plan),
        speed=speed,
        seconds={part: f"{1000 * value:,.2f} ms" for part, value in speed.seconds.items()},
        scaling=[(row.replicas, f"{row.samples_per_second:,.0f}", f"{row.share:.0%}") for row in plan.scaling],
        worth=format_scaling(plan),
        fitting=None if plan.has_speed else format_fitting(plan),
        binding=NAMES[plan.binding],
        remedies=[(remedy, mark_up(remedy.change)) for remedy in plan.remedies],
    )
    return write_page(f"porting plan, {name}", [body], style=_STYLE)


def _colour_terms(plan: Plan) -> Dict[str, str]:
    terms = [term for term in NAMES if any(memory.parts[term] for memory in plan.ipus)]
    return dict(zip(terms, _COLOURS))


def _make_bar(plan: Plan, number: int, scale: float) -> Tuple[str, List[Tuple[str, float, str]]]:
    """Return the label of an IPU, and of each term its colour, its width in percent and its words."""
    memory = plan.ipus[number]
    parts = [
        (colour, 100 * memory.parts[term] / scale, f"IPU {memory.ipu}, {NAMES[term]}: {format_mb(memory.parts[term])}")
        for term, colour in _colour_terms(plan).items()
        if memory.parts[term]
    ]
    return f"IPU {memory.ipu}", parts


def _list_moments(plan: Plan, scale: float) -> List[Tuple[str, float, float, str]]:
    """Return the fullest IPU's moments: the colour, the height in percent, how much of it stays, and the words."""
    found = []
    for moment in trace_memory(plan.step, plan.layout, plan.fullest):
        resident = 100 * moment.resident_bytes / max(1, moment.num_bytes)
        words = f"{moment.phase}, {moment.module or 'the model'}: {format_mb(moment.num_bytes)}"
        words += f", of which {format_mb(moment.resident_bytes)} are always there"
        found.append((_PHASES[moment.phase], 100 * moment.num_bytes / scale, resident, words))
    return found


def _describe_modules(plan: Plan) -> Dict[str, object]:
    """Return where modules sit: a bar for each IPU, whose parts are as wide as their time, and a table."""
    places = place_modules(plan.step, plan.layout, plan.machine)

    def tell(place: ModulePlace) -> Tuple[str, float, str]:
        words = f"IPU {place.ipu}, {place.module}: {place.share:.1%} of its time, "
        words += f"{format_mb(place.weight_bytes)} of weights, {place.num_operators} operators"
        return _MODULES[places.index(place) % 2], 100 * place.share, words

    bars = [
        (f"IPU {ipu}", [tell(place) for place in places if place.ipu == ipu]) for ipu in range(plan.layout.num_ipus)
    ]
    rows = [(place.module, place.ipu, format_mb(place.weight_bytes), f"{place.share:.1%}") for place in places]
    return {"module_bars": bars, "module_rows": rows}


def _describe_training(plan: Plan, num_samples: float) -> Dict[str, object]:
    """Return how long a training takes: the middle, the hours in which 9 of 10 end, and columns as high as likely."""
    low, high = (plan.forecast.count_hours(num_samples, share) for share in (_TAIL, 1 - _TAIL))
    width = (high - low) / _MOST_COLUMNS
    columns = []
    for number in range(_MOST_COLUMNS):
        begin, end = low + number * width, low + (number + 1) * width
        likely = plan.forecast.find_share(num_samples, end) - plan.forecast.find_share(num_samples, begin)
        columns.append((likely, f"{begin:,.1f} to {end:,.1f} hours: {likely:.1%} of such trainings"))
    most = max(likely for likely, _words in columns)
    return {
        "samples": f"{num_samples:,.0f}",
        "hours": [f"{plan.forecast.count_hours(num_samples, share):,.1f}" for share in (0.05, 0.5, 0.95)],
        "columns": [(100 * likely / most, words) for likely, words in columns],
    }


def _iter_stages(plan: Plan) -> Iterator[Tuple[str, int, str]]:
    """Iterate over the stages: the module that begins each, its IPU, and what that IPU holds."""
    held = {memory.ipu: memory.total_bytes for memory in plan.ipus}
    yield "the beginning", 0, format_mb(held[0])
    for module, ipu in plan.stages.items():
        yield module, ipu, format_mb(held[ipu])


def _list_rounds(plan: Plan) -> List[Tuple[str, List[Tuple[str, str]]]]:
    """Return what each stage does in the rounds of one step: nothing, a micro-batch forward, or one backward."""
    count = 1 + len(plan.stages)
    if count == 1 or plan.mode != "training":
        return []
    rounds = plan.options.accumulation + 2 * count - 2
    shown = min(rounds, _MOST_ROUNDS)
    rows = []
    for stage in range(count):
        cells = []
        for number in range(shown):
            forward, backward = number - stage, number - (2 * count - 2 - stage)
            does = [f"micro-batch {forward + 1} forward"] if 0 <= forward < plan.options.accumulation else []
            does += [f"micro-batch {backward + 1} backward"] if 0 <= backward < plan.options.accumulation else []
            colour = ("var(--block)", "#9ecae9" if "forward" in " ".join(does) else "#f58518", "#4c78a8")[len(does)]
            words = f"stage {stage}, round {number + 1}: {', '.join(does) or 'waits'}"
            done = [min(max(at + 1, 0), plan.options.accumulation) for at in (forward, backward - 1)]
            cells.append((colour, f"{words}; it holds {done[0] - done[1]} micro-batches"))
        rows.append((f"stage {stage}", cells))
    return rows
