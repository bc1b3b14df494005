"""This module writes one report as a page of text, and says which of its times do not count.

It takes plain values, as result files hold them, so that files can be shown without torch.
"""

from __future__ import annotations

import itertools
from typing import Callable, Iterator, List, Mapping, Optional, Tuple

from porting.bench.choices import NOT_ASKED_FOR
from porting.bench.tables import Plain, Row, write_interval, write_seconds
from porting.diagnostics import Finding, align_columns
from porting.executables.settings import format_bytes

__all__ = [
    "SIDES",
    "iter_facts",
    "lay_out_result",
    "list_candidate_rows",
    "list_failures",
    "list_step_rows",
    "tell_start_up",
    "write_failures",
    "write_headline",
    "write_layout_copies",
    "write_share",
]

SIDES = ("eager", "ported")
"""The two sides of every result, as pages show them."""


def lay_out_result(result: Plain) -> Iterator[str]:
    """Lay out one report as a page of text."""
    yield from (write_headline(result), "")
    yield from (f"  {line}" for line in align_columns(list_step_rows(result), right={1, 2}))
    yield ""
    yield from (f"  {title:<14}{text}".rstrip() for title, text in iter_facts(result))
    if result["candidates"]:
        yield from ("", *(f"  {line}" for line in align_columns(list_candidate_rows(result), right=range(1, 4))))


def write_headline(result: Plain) -> str:
    """Write what was measured in a line."""
    calls = "" if result["steps_per_call"] == 1 else f", {result['steps_per_call']} steps a call"
    return (
        f"{result['name']}: {result['samples_per_step']} samples a step{calls}, {result['precision']}, "
        f"engine {result['engine']}, {result['num_parameters']:,} parameters, {result['num_threads']} thread(s)"
    )


Line = Tuple[str, str]
"""A title, empty where the line goes on with the one above, and a text."""

_OF_STEP: Mapping[str, Callable[[Plain], str]] = {
    "first": lambda side: write_seconds(side["first_step_seconds"]),
    "median": lambda side: write_seconds(side["step_seconds"]["median"]),
    "quartiles": lambda side: " - ".join(write_seconds(side["step_seconds"][end]) for end in ("low", "high")),
    "95 % are below": lambda side: write_seconds(side["step_seconds"]["p95"]),
    "processor time": lambda side: write_seconds(side["cpu_seconds"]),
    "samples/s": lambda side: f"{side['samples_per_second']:,.0f}",
    "steps/s": lambda side: f"{1 / side['step_seconds']['median']:,.1f}",
}


def list_step_rows(result: Plain) -> List[Row]:
    """List the header and the rows of the table of one step: a column for each side."""
    rows = [(title, *(write(result[side]) for side in SIDES)) for title, write in _OF_STEP.items()]
    if result["limits"]["work"] is not None:
        rows.append(("of this machine's limit", *(write_share(result["limits"][side]) for side in SIDES)))
    return [("time of one step", *SIDES), *rows]


def list_candidate_rows(result: Plain) -> List[Row]:
    """List the header and the rows of the table of what was tried where an engine was chosen by measuring."""
    rows: List[Row] = [("tried", "compiler", "call", "x replay", "")]
    figures = {"compile_seconds": write_seconds, "call_seconds": write_seconds, "speed_up_over_replay": "{:.2f}".format}
    for candidate in result["candidates"]:
        texts = ("-" if candidate[name] is None else write(candidate[name]) for name, write in figures.items())
        rows.append((candidate["label"], *texts, candidate["problem"]))
    return rows


def iter_facts(result: Plain) -> Iterator[Line]:
    """List all that is said of one report besides its tables."""
    for tell in (_tell_speed, _tell_limits, _tell_layout_copies, _tell_data, _tell_processes, _tell_proof):
        yield from tell(result)


def _tell_speed(result: Plain) -> Iterator[Line]:
    speed_up, cost, steps = result["speed_up"], result["compilation"], result["break_even_steps"]
    wall, cpu = write_interval(speed_up["wall"]), write_interval(speed_up["cpu"])
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
    shares = (f"{name} {write_share(limits[name])} ({_write_parts(limits[name])})" for name in SIDES)
    yield "", f"at these rates {write_seconds(limits['least_seconds'])}: {', '.join(shares)}"


def write_share(share: Optional[Plain]) -> str:
    """Write how close a side is to the machine's limit, in computing or in moving bytes; "-" if that is unknown.

    >>> write_share({"compute": 0.62, "memory": 0.2})
    '62 %'
    """
    return "-" if share is None else f"{100 * max(share['compute'], share['memory']):.0f} %"


def _write_parts(share: Plain) -> str:
    return f"compute {100 * share['compute']:.0f} %, memory {100 * share['memory']:.0f} %"


_COPIES = {"operators": "by operators", "weights": "of weights by oneDNN", "others": "of other tensors by oneDNN"}


def _tell_layout_copies(result: Plain) -> Iterator[Line]:
    """Say what a step of each side copies into another layout, where that was counted."""
    for side in SIDES:
        of_side = result["layout_copies"][side]
        if of_side is not None:
            parts = [f"{of_side[kind]['number']:,.0f} {words}" for kind, words in _COPIES.items()]
            size = format_bytes(round(sum(of_side[kind]["bytes"] for kind in _COPIES)))
            number, share = f"{of_side['number']:,.0f}", f"{100 * of_side['share']:.1f} % of a step"
            yield "layout copies" if side == "eager" else "", f"{side} {number} ({', '.join(parts)}), {size}, {share}"


def write_layout_copies(of_side: Optional[Plain]) -> str:
    """Write how many copies a step makes and which part of its time they take; "-" if nobody knows.

    >>> write_layout_copies({"number": 14.0, "share": 0.021})
    '14 (2 %)'
    """
    if of_side is None:
        return "-"
    number = f"{of_side['number']:,.0f}"
    return number if not of_side["number"] else f"{number} ({100 * of_side['share']:.0f} %)"


def _tell_data(result: Plain) -> Iterator[Line]:
    for name in SIDES:
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
        peaks = ", ".join(f"{side} {format_bytes(memory[f'{side}_bytes'])}" for side in SIDES)
        yield "peak memory", peaks + share
        for figure, what in (("tensor", "of tensors"), ("process", "of the process")):
            further = [memory[f"{side}_{figure}_bytes"] for side in SIDES]
            if None not in further:
                yield "", f"{what}: " + ", ".join(f"{s} {format_bytes(f)}" for s, f in zip(SIDES, further))
    elif memory["reason"] != NOT_ASKED_FOR:
        yield "peak memory", f"not measured: {memory['reason']}"
    if start_up["num_runs"]:
        yield from zip(itertools.chain(["start-up"], itertools.repeat("")), tell_start_up(start_up))
    elif start_up["reason"] != NOT_ASKED_FOR:
        yield "start-up", f"not measured: {start_up['reason']}"


def tell_start_up(start_up: Plain) -> Iterator[str]:
    """Say what the way to the first step costs, and what it is made of, which earlier versions did not measure."""
    eager, ported, cold = (start_up[f"{side}_cpu_seconds"] for side in (*SIDES, "cold"))
    yield (
        f"eager {write_seconds(eager)}, ported {write_seconds(ported)} of "
        f"processor time to the end of the first step ({start_up['num_runs']} processes each)"
    )
    if start_up["torch_cpu_seconds"] is None:
        return
    torch_seconds, own_seconds = (write_seconds(start_up[f"{name}_cpu_seconds"]) for name in ("torch", "import"))
    compiler = "loaded" if start_up["loads_compiler"] else "not loaded"
    yield f"import torch {torch_seconds}, the port's own imports {own_seconds}, torch's compiler {compiler}"
    sides = SIDES if cold is None else (*SIDES, "cold")
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
    for text in [*write_failures(result), *result["findings"]]:
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


def write_failures(result: Plain) -> List[str]:
    """Write those findings in a line each."""
    return [f"{finding.code}: {finding.message}" for finding in list_failures(result)]


def _write_difference(value: Optional[float]) -> str:
    return "not finite" if value is None else f"{value:.1e}"
