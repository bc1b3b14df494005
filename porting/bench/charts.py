"""This module draws every chart of results: as SVG for pages, and as PNG for files.

`html_page` takes the former, and `porting bench --png` writes the latter.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, Sequence, Tuple

from porting.bench.curve import CURVE_SIDES, allow_seconds
from porting.bench.growth import Growth
from porting.bench.tables import Plain, name_case, name_cases, write_seconds
from porting.support.figures import GREY, INK, require_matplotlib, save_figure, write_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_curve", "draw_growth", "draw_roofline", "draw_speed_ups", "require_matplotlib", "write_png"]

# legible on a white page and on a dark one
_EAGER, _PORTED, _ASKED, _ALLOWED = GREY, "#3a7ebf", "#d0453c", "#2a9155"
_COLOURS = (_PORTED, "#c0602b", _ALLOWED, "#9a6fc4", _ASKED, "#a8860f")
_WIDTH, _ROW, _PNG_WIDTH = 5.6, 0.45, 12.0
# of the axis: how wide a mark and a figure are
_MARK_SHARE, _LABEL_SHARE = 0.015, 0.08


def write_png(results: Plain, path: Path) -> None:
    """Write a PNG file with the speed-ups of the measured cases, and the times of their steps beside them."""
    cases = [case for case in results["cells"] if case["result"] is not None]
    machine, common = results["machine"], name_cases(cases)[0]

    def draw(figure: Figure) -> None:
        figure.set_size_inches(_PNG_WIDTH, 1.8 + _ROW * max(1, len(cases)))
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        _draw_speed_ups(left, cases)
        for shift, side, colour in ((-0.15, "eager", _EAGER), (0.15, "ported", _PORTED)):
            medians, errors = _find_extent([case["result"][side]["step_seconds"] for case in cases], scale=1e3)
            places = [place + shift for place in range(len(cases))]
            right.errorbar(medians, places, xerr=errors, fmt="o", color=colour, capsize=3, markersize=5, label=side)
        if cases:
            right.set_xscale("log")
            right.legend(loc="best")
        right.set_xlabel("ms of a step (median, quartiles)")
        facts = f"{machine['processor']}, {machine['num_cores']} cores, torch {machine['torch']}"
        figure.suptitle(f"training: ported against eager{f' ({common})' if common else ''}\n{facts}", fontsize=10)

    path.write_bytes(save_figure(draw, format="png", dpi=130))


def draw_speed_ups(cases: Sequence[Plain]) -> str:
    """Draw the speed-up of each case as a bar, with its confidence interval and its demand; return SVG."""

    def draw(figure: Figure) -> None:
        figure.set_size_inches(_WIDTH, 0.9 + _ROW * len(cases))
        _draw_speed_ups(figure.subplots(), cases)

    titles = {f"case-{place}": name_case(case) for place, case in enumerate(cases)}
    return write_svg(draw, "speed-up of every case over eager", titles)


def _draw_speed_ups(axes: Axes, cases: Sequence[Plain]) -> None:
    places: List[int] = list(range(len(cases)))
    intervals = [case["result"]["speed_up"]["wall"] for case in cases]
    medians, errors = _find_extent(intervals)
    for place, bar in enumerate(axes.barh(places, medians, height=0.4, color=_PORTED)):
        bar.set_gid(f"case-{place}")
    axes.errorbar(medians, places, xerr=errors, fmt="none", ecolor=INK, capsize=3, linewidth=1)
    asked = [(case["demanded"], place) for place, case in zip(places, cases) if case["demanded"] is not None]
    if asked:
        axes.plot(*zip(*asked), "D", color=_ASKED, markersize=6, label="asked")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
    axes.axvline(1.0, color=INK, linewidth=0.8, linestyle="--")
    axes.set_yticks([])
    axes.set_ylim(len(cases) - 0.6, -0.8)
    limit = 1.15 * max([1.0, *(interval["high"] for interval in intervals), *(value for value, _place in asked)])
    axes.set_xlim(0, limit)
    for place, title, case, interval in zip(places, name_cases(cases)[1], cases, intervals):
        axes.annotate(title, (0, place - 0.24), (2, 1), textcoords="offset points", va="bottom", fontsize=9)
        # the figure stands at its bar, unless the mark is in the way
        gap = (case["demanded"] or 0.0) - interval["high"]
        edge = case["demanded"] if -_MARK_SHARE * limit < gap < _LABEL_SHARE * limit else interval["high"]
        axes.annotate(f"{interval['median']:.2f}", (edge, place), (8, 0), textcoords="offset points", va="center")
    axes.set_xlabel("speed-up over eager (median of rounds, 95 % interval)")


def draw_roofline(cases: Sequence[Plain]) -> str:
    """Draw what each case attains below the roof, the most that this machine does of its work; return SVG.

    Work is operations a byte that operators read and write. Cases without limits, or without operations, are left out.
    """
    measured = [case for case in cases if _count_flops(case)]
    if not measured:
        return ""
    titles: Dict[str, str] = {}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        rates = [case["result"]["limits"]["rates"] for case in measured]
        most = max(rate["flops_per_second"] for each in rates for rate in each["matmul"])
        copied = max(each["copy_bytes_per_second"] for each in rates)
        works = [_count_flops(case) / case["result"]["limits"]["work"]["operator_bytes"] for case in measured]
        ends = [min([most / copied, *works]) / 4, max([most / copied, *works]) * 4]
        roof = [ends[0], most / copied, ends[1]]
        axes.plot(roof, [min(most, copied * work) / 1e9 for work in roof], color=INK, linewidth=1.5)
        for number, (case, work) in enumerate(zip(measured, works)):
            points = []
            for side, colour in (("eager", _EAGER), ("ported", _PORTED)):
                seconds = case["result"][side]["step_seconds"]["median"]
                points.append(_count_flops(case) / seconds / 1e9)
                gid = f"roof-{number}-{side}"
                titles[gid] = f"{name_case(case)}, {side}: {points[-1]:.3g} GFLOP/s"
                label = side if number == 0 else None
                axes.plot([work], points[-1:], "o", color=colour, markersize=6, gid=gid, label=label)
            axes.plot([work, work], points, color=_PORTED, linewidth=1, zorder=0)
        axes.loglog()
        axes.set_xlabel("operations a byte")
        axes.set_ylabel("GFLOP/s")
        figure.legend(loc="outside lower center", ncols=2)

    return write_svg(draw, "what a step attains of this machine", titles)


def _count_flops(case: Plain) -> float:
    work = case["result"]["limits"]["work"]
    return 0.0 if work is None else float(work["matmul_flops"] + work["convolution_flops"])


def _find_extent(intervals: Sequence[Plain], *, scale: float = 1.0) -> Tuple[List[float], List[List[float]]]:
    """Return the medians, and how far down and up the intervals reach from them."""
    medians = [scale * interval["median"] for interval in intervals]
    below = [scale * (interval["median"] - interval["low"]) for interval in intervals]
    return medians, [below, [scale * (interval["high"] - interval["median"]) for interval in intervals]]


def draw_curve(curve: Plain) -> str:
    """Draw eager time divided by ported time over the number of steps; return SVG. The band below 1 is tolerated."""
    steps, titles = curve["steps"], {f"side-{side}": f"{side} cache" for side in CURVE_SIDES}
    titles["side-eager"] = "eager"

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        plain = [interval["median"] for interval in curve["eager"]["seconds"]]
        allowed = [seconds / allow_seconds(seconds) for seconds in plain]
        axes.fill_between(steps, allowed, 1.0, color=_ALLOWED, alpha=0.2, linewidth=0, label="5 % and 0.3 s behind")
        axes.plot(steps, [1.0] * len(steps), color=_EAGER, gid="side-eager", label="eager = 1")
        for colour, name in zip(("#c0602b", _PORTED), CURVE_SIDES):
            side = curve[name]
            found = [(number, ratio) for number, ratio in zip(steps, side["ratios"]) if ratio is not None]
            numbers = [number for number, _ratio in found]
            low, high, median = ([ratio[end] for _number, ratio in found] for end in ("low", "high", "median"))
            axes.fill_between(numbers, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.plot(numbers, median, "o-", color=colour, markersize=4, gid=f"side-{name}", label=f"{name} cache")
            for number, run in enumerate(side["engines"], start=1):
                for engine in run[1:]:
                    gid = f"engine-{len(titles)}"
                    after = f"after {write_seconds(engine['seconds'])}, process {number}"
                    titles[gid] = f"{engine['name']} from step {engine['steps']:,} on, {after}"
                    axes.axvline(engine["steps"], color=colour, linestyle="--", linewidth=1, gid=gid)
        _scale_axes(axes, steps, "{:g}".format)
        axes.set_xlabel("steps")
        axes.set_ylabel("eager time / ported time")
        figure.legend(loc="outside lower center", ncols=2)

    return write_svg(draw, "eager time over ported time, to N steps", titles)


def draw_growth(growth: Growth) -> str:
    """Draw the time of each figure over the size; return SVG. The dashed line is linear growth."""
    lines = {
        title: [(size, value) for size, value in zip(growth.sizes, seconds) if value]
        for title, seconds in growth.seconds.items()
    }
    values = [value for points in lines.values() for _size, value in points]
    if not values:
        return ""
    first, last = growth.sizes[0], growth.sizes[-1]
    # in the middle of the picture, where lines of figures can be seen against it
    middle = (min(values) * max(values)) ** 0.5 * (first / last) ** 0.5
    titles = {"growth-linear": "linear"}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        linear = [middle, middle * last / first]
        axes.plot([first, last], linear, color=_EAGER, linestyle="--", gid="growth-linear", label="linear")
        for number, (title, points) in enumerate(lines.items()):
            if points:
                titles[f"growth-{number}"] = title
                axes.plot(*zip(*points), "o-", color=_COLOURS[number], gid=f"growth-{number}", label=title)
        _scale_axes(axes, growth.sizes, write_seconds)
        axes.set_xlabel(growth.grown.replace("_", " "))
        figure.legend(loc="outside lower center", ncols=3)

    return write_svg(draw, f"seconds over {growth.grown}", titles)


def _scale_axes(axes: Axes, numbers: Sequence[int], write: Callable[[float], str]) -> None:
    """Make both axes logarithmic, with a tick at each of some numbers, or at powers of ten where those are many."""
    ticker = require_matplotlib().ticker
    axes.loglog()
    shown = [number for number in numbers if len(numbers) <= 8 or str(number).strip("0") == "1"]
    axes.set_xticks(shown, [f"{number:,}" for number in shown])
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axes.yaxis.set_major_formatter(lambda value, _place: write(value))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(ticker.NullLocator())
