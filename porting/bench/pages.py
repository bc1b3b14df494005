"""This module writes results as text: a page for one report, and a table for many.

It takes plain values, as result files hold them, so that files can be shown without torch.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from porting.bench.layout_pages import tell_layout_copies, write_layout_copies
from porting.diagnostics import Finding, align_columns
from porting.executables.settings import format_bytes

__all__ = [
    "NOT_ASKED_FOR",
    "lay_out_machinery",
    "lay_out_orders",
    "lay_out_result",
    "lay_out_start_up",
    "lay_out_table",
    "list_failures",
    "list_rows",
    "name_case",
    "name_cases",
    "read_counted_speed_up",
    "write_seconds",
    "write_share",
]

Plain = Mapping[str, Any]

_SIDES = ("eager", "ported")

NOT_ASKED_FOR = "not asked for"
"""The reason why there is no figure that was left out on purpose."""


def lay_out_result(result: Plain) -> Iterator[str]:
    """Lay out one report as a page."""
    calls = "" if result["steps_per_call"] == 1 else f", {result['steps_per_call']} steps a call"
    yield (
        f"{result['name']}: {result['samples_per_step']} samples a step{calls}, {result['precision']}, "
        f"engine {result['engine']}, {result['num_parameters']:,} parameters, {result['num_threads']} thread(s)"
    )
    yield ""
    rows: List[Tuple[str, List[str]]] = [("time of one step", list(_SIDES))]
    sides = [result[name] for name in _SIDES]
    steps = [side["step_seconds"] for side in sides]
    rows.append(("first", [write_seconds(side["first_step_seconds"]) for side in sides]))
    rows.append(("median", [write_seconds(step["median"]) for step in steps]))
    rows.append(("quartiles", [f"{write_seconds(step['low'])} - {write_seconds(step['high'])}" for step in steps]))
    rows.append(("95 % are below", [write_seconds(step["p95"]) for step in steps]))
    rows.append(("processor time", [write_seconds(side["cpu_seconds"]) for side in sides]))
    rows.append(("samples/s", [f"{side['samples_per_second']:,.0f}" for side in sides]))
    rows.append(("steps/s", [f"{1 / step['median']:,.1f}" for step in steps]))
    limits = result["limits"]
    if limits["work"] is not None:
        rows.append(("of this machine's limit", [write_share(limits[name]) for name in _SIDES]))
    for title, texts in rows:
        yield f"  {title:<26}" + "".join(f"{text:>22}" for text in texts)
    yield ""
    for title, text in itertools.chain(
        _tell_speed(result),
        _tell_limits(result),
        tell_layout_copies(result),
        _tell_data(result),
        _tell_processes(result),
        _tell_proof(result),
    ):
        yield f"  {title:<14}{text}".rstrip()
    if result["candidates"]:
        yield ""
        yield f"  {'tried':<52}{'compiler':>10}{'call':>10}{'x replay':>10}"
    for candidate in result["candidates"]:
        figures = [(candidate[name], write_seconds) for name in ("compile_seconds", "call_seconds")]
        figures.append((candidate["speed_up_over_replay"], "{:.2f}".format))
        texts = [f"{'-' if value is None else write(value):>10}" for value, write in figures]
        yield f"  {candidate['label']:<52}{''.join(texts)}  {candidate['problem']}".rstrip()


Line = Tuple[str, str]
"""A title, empty where the line goes on with the one above, and a text."""


def _tell_speed(result: Plain) -> Iterator[Line]:
    speed_up, cost, steps = result["speed_up"], result["compilation"], result["break_even_steps"]
    wall, cpu = _write_interval(speed_up["wall"]), _write_interval(speed_up["cpu"])
    yield "speed-up", f"{wall} by the clock, {cpu} in processor time"
    yield "", f"eager time / ported time, medians of {len(speed_up['rounds'])} rounds in turns, 95 % intervals"
    yield "eager is", result["eager"]["described"]
    phases = {"capture": "capture", "search": "find", "compilers": "compile", "load": "load"}
    details = [
        f"{name} {write_seconds(cost[f'{key}_seconds'])}"
        for name, key in phases.items()
        if cost[f"{key}_seconds"] is not None
    ]
    details += [f"processor {write_seconds(cost['cpu_seconds'])}", f"cache {cost['cache']}"]
    if cost["child_peak_bytes"]:
        details.append(f"largest compiler process {format_bytes(cost['child_peak_bytes'])}")
    yield "compiling", f"{write_seconds(cost['total_seconds'])} ({', '.join(details)})"
    yield "break-even", "never: no time is saved" if steps is None else f"after {steps:,} steps"


def _tell_limits(result: Plain) -> Iterator[Line]:
    """Say what the machine attains and what of it a step needs."""
    limits = result["limits"]
    if limits["work"] is None:
        return
    rates, work = limits["rates"], limits["work"]
    best = max(rates["matmul"], key=lambda rate: rate["flops_per_second"])
    yield (
        "this machine",
        f"products of matrices {best['flops_per_second'] / 1e9:,.1f} GFLOP/s (at {best['size']}), convolution "
        f"{rates['convolution_flops_per_second'] / 1e9:,.1f}, copies {rates['copy_bytes_per_second'] / 1e9:,.1f} GB/s",
    )
    yield (
        "",
        f"a step: {work['matmul_flops'] / 1e9:.3g} GFLOP in products, {work['convolution_flops'] / 1e9:.3g} in "
        f"convolutions, {format_bytes(round(work['operator_bytes']))} through {work['num_operators']:,.0f} operators",
    )
    shares = (f"{name} {write_share(limits[name])} ({_write_parts(limits[name])})" for name in _SIDES)
    yield "", f"at these rates {write_seconds(limits['least_seconds'])}: {', '.join(shares)}"


def write_share(share: Optional[Plain]) -> str:
    """Write how close a side is to the machine's limit, in computing or in moving bytes; "-" if that is unknown.

    >>> write_share({"compute": 0.62, "memory": 0.2})
    '62 %'
    """
    return "-" if share is None else f"{100 * max(share['compute'], share['memory']):.0f} %"


def _write_parts(share: Plain) -> str:
    return f"compute {100 * share['compute']:.0f} %, memory {100 * share['memory']:.0f} %"


def _tell_data(result: Plain) -> Iterator[Line]:
    for name in _SIDES:
        data = result[name]["data"]
        if data is None:
            continue
        bound = data["bound"]
        is_bound = f"data bound by x{bound:.1f}" if bound > 1 else ""
        yield f"data, {name}", is_bound or f"not data bound: the loader is x{1 / bound:.1f} faster than the step"
        yield (
            "",
            f"a call alone {write_seconds(data['synthetic_seconds'])}, "
            f"loader alone {write_seconds(data['loader_seconds'])}, "
            f"both {write_seconds(data['end_to_end_seconds'])}, {100 * data['waiting_share']:.1f} % of it waiting",
        )
    if result["ported"]["data"] is not None:
        yield "", f"with {result['ported']['data']['source']}"


def _tell_processes(result: Plain) -> Iterator[Line]:
    memory, start_up = result["memory"], result["start_up"]
    if memory["eager_bytes"] is not None and memory["ported_bytes"] is not None:
        share = "" if memory["ratio"] is None else f" (x{memory['ratio']:.2f})"
        peaks = ", ".join(f"{side} {format_bytes(memory[f'{side}_bytes'])}" for side in _SIDES)
        yield "peak memory", peaks + share
        for figure, what in (("tensor", "of tensors"), ("process", "of the process")):
            further = [memory[f"{side}_{figure}_bytes"] for side in _SIDES]
            if None not in further:
                yield "", f"{what}: " + ", ".join(f"{s} {format_bytes(f)}" for s, f in zip(_SIDES, further))
    elif memory["reason"] != NOT_ASKED_FOR:
        yield "peak memory", f"not measured: {memory['reason']}"
    if start_up["num_runs"]:
        yield from zip(itertools.chain(["start-up"], itertools.repeat("")), _tell_start_up(start_up))
    elif start_up["reason"] != NOT_ASKED_FOR:
        yield "start-up", f"not measured: {start_up['reason']}"


def _tell_start_up(start_up: Plain) -> Iterator[str]:
    """Say what the way to the first step costs, and what it is made of, which earlier versions did not measure."""
    eager, ported, cold = (start_up[f"{side}_cpu_seconds"] for side in (*_SIDES, "cold"))
    yield (
        f"eager {write_seconds(eager)}, ported {write_seconds(ported)} of "
        f"processor time to the end of the first step ({start_up['num_runs']} processes each)"
    )
    if start_up["torch_cpu_seconds"] is None:
        return
    torch_seconds, own_seconds = (write_seconds(start_up[f"{name}_cpu_seconds"]) for name in ("torch", "import"))
    compiler = "loaded" if start_up["loads_compiler"] else "not loaded"
    yield f"import torch {torch_seconds}, the port's own imports {own_seconds}, torch's compiler {compiler}"
    sides = _SIDES if cold is None else (*_SIDES, "cold")
    firsts = {side: start_up[f"{side}_first_step_cpu_seconds"] for side in sides}
    yield f"first step: {', '.join(f'{side} {write_seconds(first)}' for side, first in firsts.items())}"
    if cold is None:
        yield f"over eager: x{ported / eager:.2f}"
    else:
        yield (
            f"cold {write_seconds(cold)}; over eager: cold x{cold / eager:.2f}, warm x{ported / eager:.2f}; "
            f"first step, warm over cold: x{firsts['ported'] / firsts['cold']:.2f}"
        )


def _tell_proof(result: Plain) -> Iterator[Line]:
    parity, device = result["parity"], result["device"]
    apart = f"{_write_difference(parity['difference'])} apart over {parity['num_steps']} steps"
    yield "same losses", f"{parity['verdict']}: {apart} (up to {parity['tolerance']:.0e})"
    if parity["reference_eager"] is not None:
        ported = _write_difference(parity["reference_ported"])
        num_losses, first = len(parity["eager_losses"]), parity["num_referenced"]
        where = f" in the first {first} losses; after them rounding decides" if first and first < num_losses else ""
        yield "", f"from float64: eager {parity['reference_eager']:.1e}, ported {ported}{where}"
    engine = f", engine {device['engine']}" if device["engine"] else ""
    yield "ran on", f"{device['device']}{engine}" + ("; no IPU took part" if device["is_simulator"] else "")
    yield "", f"{device['calls_made']} calls made, {device['calls_counted']} counted by the device"
    for text in [*_write_failures(result), *result["findings"]]:
        yield "note", text


def list_failures(report: Plain) -> List[Finding]:
    """List the findings that make a report's times invalid; empty where they count."""
    found = []
    parity, device = report["parity"], report["device"]
    if parity["verdict"] == "fail":
        difference = _write_difference(parity["difference"])
        fault = f"the losses differ by {difference}, more than {parity['tolerance']:.0e} allows"
        found.append(Finding("T003", fault, help="measure `--engine replay` to see whether the engine is at fault"))
    if not device["is_proven"]:
        fault = (
            f"{device['calls_made']} calls were made, the device counted {device['calls_counted']} and "
            f"{device['num_compilations']} compilations"
        )
        found.append(Finding("T004", fault, help="leave the ported model as it is while it trains"))
    return found


def _write_failures(result: Plain) -> List[str]:
    return [f"{finding.code}: {finding.message}" for finding in list_failures(result)]


# -- the table ---------------------------------------------------------------------------------------------------------

_FIGURES = ("eager", "ported", "speed-up (95 %)", "CPU", "asked", "limit", "compile", "pays after", "memory", "copies")
_HEADER = ("workload", *_FIGURES, "losses")
_LEFT_OUT_IF_EMPTY = frozenset(["limit", "copies"])


def lay_out_table(cases: Sequence[Plain], *, width: int = 120) -> Iterator[str]:
    """Lay out cases as a table of at most `width` columns: long titles are cut, failed cases say why below.

    What all cases have in common stands above the table and not in their titles.
    """
    common, titles = name_cases(cases)
    if common:
        yield from (f"all: {common}", "")
    rows = list_rows(cases)
    widths = [max(map(len, column)) for column in zip(*rows)]
    others = sum(widths[1:]) + 2 * (len(widths) - 1)
    longest = max(12, min(widths[0], width - others))
    cut = ((title if len(title) <= longest else title[: longest - 3] + "...").ljust(longest) for title, *_texts in rows)
    yield from align_columns([(title, *row[1:]) for title, row in zip(cut, rows)], right=range(1, len(widths)))
    for case, title in zip(cases, titles):
        reasons = [f"{case['status'].replace('_', ' ')}: {case['reason']}"] if case["reason"] else []
        for reason in reasons if case["result"] is None else _write_failures(case["result"]):
            yield from ("", f"{title}: {reason}")


def list_rows(cases: Sequence[Plain]) -> List[Tuple[str, ...]]:
    """List the header and a row for each case, without columns that were measured for none of them."""
    rows = [_HEADER, *((title, *_list_figures(case)) for case, title in zip(cases, name_cases(cases)[1]))]
    columns = [column for column in zip(*rows) if column[0] not in _LEFT_OUT_IF_EMPTY or {*column[1:]} != {"-"}]
    return list(zip(*columns))


def _list_figures(case: Plain) -> Tuple[str, ...]:
    """List what a row of the table has after its title."""
    asked, result = case["demanded"], case["result"]
    demanded = "-" if asked is None else f"{asked:.2f}"
    if result is None:
        return ("-", "-", case["status"].replace("_", " "), "-", demanded, "-", "-", "-", "-", "-", "-")
    if asked is not None:
        demanded += " ok" if read_counted_speed_up(result)["wall"]["median"] >= asked else " no"
    pays, memory = result["break_even_steps"], result["memory"]["ratio"]
    return (
        *(write_seconds(result[side]["step_seconds"]["median"]) for side in _SIDES),
        _write_interval(result["speed_up"]["wall"]),
        f"{result['speed_up']['cpu']['median']:.2f}",
        demanded,
        write_share(result["limits"]["ported"]),
        write_seconds(result["compilation"]["total_seconds"]),
        "never" if pays is None else f"{pays:,}",
        "-" if memory is None else f"x{memory:.2f}",
        write_layout_copies(result["layout_copies"]["ported"]),
        result["parity"]["verdict"],
    )


def read_counted_speed_up(result: Plain) -> Plain:
    """Return the speed-up that the demand is compared with: over the fastest way without the port, or over eager."""
    speed_up: Plain = result["against"]["speed_up"] or result["speed_up"]
    return speed_up


def lay_out_start_up(cases: Sequence[Plain]) -> Iterator[str]:
    """Lay out the start-up times of processes, for the cases where they were measured."""
    for case, title in zip(cases, name_cases(cases)[1]):
        if case["result"] is not None and case["result"]["start_up"]["num_runs"]:
            yield f"start-up of {title}"
            yield from (f"  {text}" for text in _tell_start_up(case["result"]["start_up"]))


def lay_out_machinery(cases: Sequence[Plain]) -> Iterator[str]:
    """Say how much time a call itself takes, judged by models that compute next to nothing."""
    told = []
    for case in cases:
        if case["name"].startswith("overhead_tiny") and case["result"] is not None:
            eager, ported = (case["result"][side]["step_seconds"]["median"] for side in _SIDES)
            mode = {"overhead_tiny": "training", "overhead_tiny_inference": "inference"}[case["name"]]
            told.append(f"{1e6 * (ported - eager):.0f} us in {mode}")
    if told:
        yield f"machinery of a call: {', '.join(told)} (the tiny models' ported less eager step)"


def lay_out_orders(cases: Sequence[Plain]) -> Iterator[str]:
    """Lay out the peaks of whole processes by computation order, beside that of the order `none`."""
    peaks = {
        (case["name"], case["choices"]["order"]): case["result"]["memory"]["ported_process_bytes"]
        for case in cases
        if case["result"] is not None and case["choices"].get("order")
    }
    for (name, order), peak in peaks.items():
        plain = peaks.get((name, "none"))
        if peak is not None:
            share = "" if plain is None else f"  x{peak / plain:.2f} of none"
            yield f"peak of the process, {name}, order {order:<8}{format_bytes(peak):>12}{share}"


def name_case(case: Plain) -> str:
    """Return the full name of a case, with all of its choices."""
    return " ".join([case["name"], *_write_choices(case, case["choices"])])


def name_cases(cases: Sequence[Plain]) -> Tuple[str, List[str]]:
    """Return what cases have in common, and the short name of each: with the choices that vary only.

    >>> choices = {"engine": "replay", "precision": "float32"}
    >>> cases = [{"name": "cnn", "choices": {**choices, "batch": batch}} for batch in (8, 16)]
    >>> name_cases(cases)
    ('float32, replay', ['cnn batch 8', 'cnn batch 16'])
    """
    keys = [key for case in cases[:1] for key in case["choices"]]
    varying = [key for key in keys if len({case["choices"][key] for case in cases}) > 1]
    common = [key for key in keys if key not in varying]
    above = ", ".join(_write_choices({**cases[0], "repeat": 1}, common)) if cases else ""
    return above, [" ".join([case["name"], *_write_choices(case, varying)]) for case in cases]


_WORDS = {
    "batch": "batch {}",
    "precision": "{}",
    "engine": "{}",
    "accumulation": "{} accumulated",
    "replicas": "{} replicas",
    "device_iterations": "{} steps a call",
    "threads": "{} thread(s)",
    "order": "order {}",
    "layers": "{} layers",
}


def _write_choices(case: Plain, keys: Iterable[str]) -> List[str]:
    """Write some choices of a case in words, in the order of `_WORDS`."""
    chosen = {key: case["choices"][key] for key in keys if case["choices"][key] is not None}
    words = [form.format(chosen[key]) for key, form in _WORDS.items() if key in chosen]
    return words + ([f"#{case['repeat']}"] if case.get("repeat", 1) > 1 else [])


# -- quantities --------------------------------------------------------------------------------------------------------


def _write_interval(interval: Plain) -> str:
    return f"{interval['median']:.2f} ({interval['low']:.2f}-{interval['high']:.2f})"


def _write_difference(value: Optional[float]) -> str:
    return "not finite" if value is None else f"{value:.1e}"


def write_seconds(value: float) -> str:
    """Write a duration with three digits and its unit.

    >>> write_seconds(0.00123), write_seconds(75.2), write_seconds(0.0421)
    ('1.23 ms', '75.2 s', '42.1 ms')
    """
    factor, unit = next(((by, unit) for by, unit in ((1e6, "us"), (1e3, "ms")) if value * by < 999.5), (1.0, "s"))
    scaled = value * factor
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f} {unit}"
