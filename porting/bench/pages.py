"""Results as text: a page for one report, a table for many. Both are written from plain values, as files have them."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from porting.diagnostics import Finding

__all__ = [
    "cell_title",
    "cell_titles",
    "failures",
    "machinery_lines",
    "order_lines",
    "result_lines",
    "seconds",
    "size",
    "start_up_lines",
    "table_lines",
]

Plain = Mapping[str, Any]


def result_lines(result: Plain) -> Iterator[str]:
    """Lay out one report as a page."""
    yield _headline(result)
    yield ""
    yield f"  {'time of one step':<26}{'eager':>22}{'ported':>22}"
    yield from _step_lines(result)
    yield ""
    yield from _speed_lines(result)
    yield from _compile_lines(result)
    yield from _data_lines(result)
    yield from _process_lines(result)
    yield from _proof_lines(result)


def _headline(result: Plain) -> str:
    step = f"{result['samples_per_step']} samples a step"
    calls = "" if result["steps_per_call"] == 1 else f", {result['steps_per_call']} steps a call"
    return (
        f"{result['name']}: {step}{calls}, {result['precision']}, engine {result['engine']}, "
        f"{result['num_parameters']:,} parameters, {result['num_threads']} thread(s)"
    )


def _step_lines(result: Plain) -> Iterator[str]:
    eager, ported = result["eager"], result["ported"]

    def row(title: str, *values: str) -> str:
        return f"  {title:<26}" + "".join(f"{value:>22}" for value in values)

    steps = eager["step_seconds"], ported["step_seconds"]
    yield row("first", *(seconds(side["first_step_seconds"]) for side in (eager, ported)))
    yield row("median", *(seconds(step["median"]) for step in steps))
    yield row("quartiles", *(f"{seconds(step['low'])} - {seconds(step['high'])}" for step in steps))
    yield row("95 % are below", *(seconds(step["p95"]) for step in steps))
    yield row("processor time", *(seconds(side["cpu_seconds"]) for side in (eager, ported)))
    yield row("samples/s", *(f"{side['samples_per_second']:,.0f}" for side in (eager, ported)))


def _speed_lines(result: Plain) -> Iterator[str]:
    speed_up = result["speed_up"]
    wall, cpu = _interval(speed_up["wall"]), _interval(speed_up["cpu"])
    yield _line("speed-up", f"{wall} by the clock, {cpu} in processor time")
    yield _line("", f"eager time / ported time, medians of {len(speed_up['rounds'])} rounds in turns, 95 % intervals")
    yield _line("eager is", result["eager"]["described"])


def _compile_lines(result: Plain) -> Iterator[str]:
    cost = result["compilation"]
    parts = [
        f"{name} {seconds(cost[key])}"
        for name, key in (
            ("capture", "capture_seconds"),
            ("search", "find_seconds"),
            ("compilers", "compile_seconds"),
            ("load", "load_seconds"),
        )
        if cost[key] is not None
    ]
    details = [*parts, f"processor {seconds(cost['cpu_seconds'])}", f"cache {cost['cache']}"]
    if cost["child_peak_bytes"]:
        details.append(f"largest compiler process {size(cost['child_peak_bytes'])}")
    yield _line("compiling", f"{seconds(cost['total_seconds'])} ({', '.join(details)})")
    steps = result["break_even_steps"]
    yield _line("break-even", "never: no time is saved" if steps is None else f"after {steps:,} steps")


def _data_lines(result: Plain) -> Iterator[str]:
    for name in ("eager", "ported"):
        data = result[name]["data"]
        if data is None:
            continue
        verdict = (
            f"data bound by x{data['bound']:.1f}"
            if data["bound"] > 1
            else f"not data bound: the loader is x{1 / data['bound']:.1f} faster than the step"
        )
        yield _line(f"data, {name}", verdict)
        yield _line(
            "",
            f"a call alone {seconds(data['synthetic_seconds'])}, loader alone {seconds(data['loader_seconds'])}, "
            f"both {seconds(data['end_to_end_seconds'])}, {100 * data['waiting_share']:.1f} % of it waiting",
        )
    if result["ported"]["data"] is not None:
        yield _line("", f"with {result['ported']['data']['source']}")


def _process_lines(result: Plain) -> Iterator[str]:
    memory, start_up = result["memory"], result["start_up"]
    if memory["eager_bytes"] is not None and memory["ported_bytes"] is not None:
        share = "" if memory["ratio"] is None else f" (x{memory['ratio']:.2f})"
        yield _line("peak memory", f"eager {size(memory['eager_bytes'])}, ported {size(memory['ported_bytes'])}{share}")
    elif memory["reason"] != _NOT_ASKED_FOR:
        yield _line("peak memory", f"not measured: {memory['reason']}")
    if start_up["num_runs"]:
        titles = itertools.chain(["start-up"], itertools.repeat(""))
        yield from (_line(title, text) for title, text in zip(titles, _start_up_texts(start_up)))
    elif start_up["reason"] != _NOT_ASKED_FOR:
        yield _line("start-up", f"not measured: {start_up['reason']}")


_NOT_ASKED_FOR = "not asked for"


def _start_up_texts(start_up: Plain) -> Iterator[str]:
    """Say what the way to the first step costs, and what it is made of, which results of earlier versions lack."""
    yield (
        f"eager {seconds(start_up['eager_cpu_seconds'])}, ported {seconds(start_up['ported_cpu_seconds'])} of "
        f"processor time to the end of the first step ({start_up['num_runs']} processes each)"
    )
    if start_up.get("torch_cpu_seconds") is None:
        return
    torch_seconds, own_seconds = seconds(start_up["torch_cpu_seconds"]), seconds(start_up["import_cpu_seconds"])
    compiler = "loaded" if start_up["loads_compiler"] else "not loaded"
    yield f"import torch {torch_seconds}, the port's own imports {own_seconds}, torch's compiler {compiler}"
    sides = [side for side in ("eager", "ported", "cold") if start_up[f"{side}_cpu_seconds"] is not None]
    firsts = {side: start_up[f"{side}_first_step_cpu_seconds"] for side in sides}
    yield f"first step: {', '.join(f'{side} {seconds(first)}' for side, first in firsts.items())}"
    eager, ported, cold = (start_up[f"{side}_cpu_seconds"] for side in ("eager", "ported", "cold"))
    if cold is None:
        yield f"over eager: x{ported / eager:.2f}"
    else:
        yield (
            f"cold {seconds(cold)}; over eager: cold x{cold / eager:.2f}, warm x{ported / eager:.2f}; "
            f"first step, warm over cold: x{firsts['ported'] / firsts['cold']:.2f}"
        )


def _proof_lines(result: Plain) -> Iterator[str]:
    parity, device = result["parity"], result["device"]
    difference = "not finite" if parity["difference"] is None else f"{parity['difference']:.1e}"
    yield _line(
        "same losses",
        f"{parity['verdict']}: {difference} apart over {parity['num_steps']} steps (up to {parity['tolerance']:.0e})",
    )
    if parity["reference_eager"] is not None:
        yield _line(
            "",
            f"from float64: eager {parity['reference_eager']:.1e}, ported {_number(parity['reference_ported'])}",
        )
    simulated = "; no IPU took part" if device["is_simulator"] else ""
    engine = f", engine {device['engine']}" if device["engine"] else ""
    yield _line("ran on", f"{device['device']}{engine}{simulated}")
    yield _line("", f"{device['calls_made']} calls made, {device['calls_counted']} counted by the device")
    for text in [*_in_line(failures(result)), *result["findings"]]:
        yield _line("note", text)
    if result["candidates"]:
        yield ""
        yield f"  {'tried':<52}{'compiler':>10}{'call':>10}{'x replay':>10}"
    for candidate in result["candidates"]:
        figures = (
            _or_dash(candidate["compile_seconds"], seconds),
            _or_dash(candidate["call_seconds"], seconds),
            _or_dash(candidate["speed_up_over_replay"], "{:.2f}".format),
        )
        texts = "".join(f"{text:>10}" for text in figures)
        yield f"  {candidate['label']:<52}{texts}  {candidate['problem']}".rstrip()


def _or_dash(value: Optional[float], write: Callable[[float], str]) -> str:
    return "-" if value is None else write(value)


def _number(value: Optional[float]) -> str:
    return "not finite" if value is None else f"{value:.1e}"


def _line(title: str, text: str) -> str:
    return f"  {title:<14}{text}".rstrip()


def failures(report: Plain) -> List[Finding]:
    """Say why a report's times do not count; nothing where they do."""
    found = []
    parity, device = report["parity"], report["device"]
    if parity["verdict"] == "fail":
        difference = "not finite" if parity["difference"] is None else f"{parity['difference']:.1e}"
        fault = f"the losses differ by {difference}, more than {parity['tolerance']:.0e} allows"
        found.append(Finding("T003", fault, help="measure `--engine replay` to see whether the engine is at fault"))
    if not device["is_proven"]:
        fault = (
            f"{device['calls_made']} calls were made, the device counted {device['calls_counted']} and "
            f"{device['num_compilations']} compilations"
        )
        found.append(Finding("T004", fault, help="leave the ported model as it is while it trains"))
    return found


def _in_line(findings: Iterable[Finding]) -> List[str]:
    return [f"{finding.code}: {finding.message}" for finding in findings]


# -- the table ---------------------------------------------------------------------------------------------------------

_HEADER = (
    "workload",
    "eager",
    "ported",
    "speed-up (95 %)",
    "CPU",
    "asked",
    "compile",
    "pays after",
    "memory",
    "losses",
)


def table_lines(cells: Sequence[Plain], *, width: int = 120) -> Iterator[str]:
    """Lay out cells as a table of at most `width` columns: long titles are cut, failed cells say why below.

    What all cells have in common stands above the table and not in their titles.
    """
    common, titles = cell_titles(cells)
    if common:
        yield from (f"all: {common}", "")
    rows = [_row(cell, title) for cell, title in zip(cells, titles)]
    widths = [max(len(row[column]) for row in [_HEADER, *rows]) for column in range(len(_HEADER))]
    others = sum(widths[1:]) + 2 * (len(_HEADER) - 1)
    widths[0] = max(12, min(widths[0], width - others))
    for row in [_HEADER, *rows]:
        title = row[0] if len(row[0]) <= widths[0] else row[0][: widths[0] - 3] + "..."
        texts = (text.rjust(columns) for text, columns in zip(row[1:], widths[1:]))
        yield "  ".join([title.ljust(widths[0]), *texts]).rstrip()
    for cell, title in zip(cells, titles):
        for reason in _reasons(cell):
            yield ""
            yield f"{title}: {reason}"


def start_up_lines(cells: Sequence[Plain]) -> Iterator[str]:
    """Lay out what the starts of processes cost, for the cells of which that was measured."""
    for cell, title in zip(cells, cell_titles(cells)[1]):
        if cell["result"] is not None and cell["result"]["start_up"]["num_runs"]:
            yield f"start-up of {title}"
            yield from (f"  {text}" for text in _start_up_texts(cell["result"]["start_up"]))


def machinery_lines(cells: Sequence[Plain]) -> Iterator[str]:
    """Say what a call costs by itself, from the models that compute next to nothing."""
    extra = {
        cell["name"]: cell["result"]["ported"]["step_seconds"]["median"]
        - cell["result"]["eager"]["step_seconds"]["median"]
        for cell in cells
        if cell["name"].startswith("overhead_tiny") and cell["result"] is not None
    }
    if extra:
        modes = {"overhead_tiny": "training", "overhead_tiny_inference": "inference"}
        told = ", ".join(f"{1e6 * value:.0f} us in {modes[name]}" for name, value in extra.items())
        yield f"machinery of a call: {told} (the tiny models' ported less eager step)"


def order_lines(cells: Sequence[Plain]) -> Iterator[str]:
    """Lay out the peaks of whole processes by computation order, beside that of the order `none`."""
    peaks = {
        (cell["name"], cell["choices"]["order"]): cell["result"]["memory"].get("ported_process_bytes")
        for cell in cells
        if cell["result"] is not None and cell["choices"].get("order")
    }
    for (name, order), peak in peaks.items():
        plain = peaks.get((name, "none"))
        if peak is not None:
            share = "" if plain is None else f"  x{peak / plain:.2f} of none"
            yield f"peak of the process, {name}, order {order:<8}{size(peak):>12}{share}"


def cell_title(cell: Plain) -> str:
    """Name a cell by itself, with all of its choices."""
    return " ".join([cell["name"], *_choices(cell, cell["choices"])])


def cell_titles(cells: Sequence[Plain]) -> Tuple[str, List[str]]:
    """Name cells among each other: what they have in common, and for each its name with the choices that vary.

    >>> choices = {"engine": "replay", "precision": "float32"}
    >>> cells = [{"name": "cnn", "choices": {**choices, "batch": batch}} for batch in (8, 16)]
    >>> cell_titles(cells)
    ('float32, replay', ['cnn batch 8', 'cnn batch 16'])
    """
    keys = [key for cell in cells[:1] for key in cell["choices"]]
    varying = [key for key in keys if len({cell["choices"][key] for cell in cells}) > 1]
    common = [key for key in keys if key not in varying]
    above = ", ".join(_choices({**cells[0], "repeat": 1}, common)) if cells else ""
    return above, [" ".join([cell["name"], *_choices(cell, varying)]) for cell in cells]


def _choices(cell: Plain, keys: Iterable[str]) -> List[str]:
    """Write some choices of a cell in words, in the order of `_WORDS`."""
    chosen = {key: cell["choices"][key] for key in keys if cell["choices"][key] is not None}
    words = [form.format(chosen[key]) for key, form in _WORDS.items() if key in chosen]
    return words + ([f"#{cell['repeat']}"] if cell.get("repeat", 1) > 1 else [])


_WORDS = {
    "batch": "batch {}",
    "precision": "{}",
    "engine": "{}",
    "accumulation": "{} accumulated",
    "replicas": "{} replicas",
    "device_iterations": "{} steps a call",
    "threads": "{} thread(s)",
    "order": "order {}",
}


def _row(cell: Plain, title: str) -> Tuple[str, ...]:
    asked = cell["demanded"]
    demanded = "-" if asked is None else f"{asked:.2f}"
    result = cell["result"]
    if result is None:
        return (title, "-", "-", cell["status"].replace("_", " "), "-", demanded, "-", "-", "-", "-")
    speed, memory, pays = result["speed_up"], result["memory"]["ratio"], result["break_even_steps"]
    reached = "" if asked is None else (" ok" if speed["wall"]["median"] >= asked else " no")
    return (
        title,
        seconds(result["eager"]["step_seconds"]["median"]),
        seconds(result["ported"]["step_seconds"]["median"]),
        _interval(speed["wall"]),
        f"{speed['cpu']['median']:.2f}",
        demanded + reached,
        seconds(result["compilation"]["total_seconds"]),
        "never" if pays is None else f"{pays:,}",
        "-" if memory is None else f"x{memory:.2f}",
        result["parity"]["verdict"],
    )


def _reasons(cell: Plain) -> List[str]:
    if cell["result"] is None:
        return [f"{cell['status'].replace('_', ' ')}: {cell['reason']}"] if cell["reason"] else []
    return _in_line(failures(cell["result"]))


def _interval(interval: Plain) -> str:
    return f"{interval['median']:.2f} ({interval['low']:.2f}-{interval['high']:.2f})"


# -- quantities --------------------------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    """Write a duration with three digits and its unit.

    >>> seconds(0.00123), seconds(75.2), seconds(0.0421)
    ('1.23 ms', '75.2 s', '42.1 ms')
    """
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if value * factor < 999.5:
            return f"{_three_digits(value * factor)} {unit}"
    return f"{_three_digits(value)} s"


def size(num_bytes: int) -> str:
    """Write a number of bytes.

    >>> size(5 * 2**20), size(3 * 2**29)
    ('5.0 MiB', '1.5 GiB')
    """
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes < 2**30 else f"{num_bytes / 2**30:.1f} GiB"


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
