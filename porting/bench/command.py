"""Run `porting bench`, which trains targets in plain eager PyTorch and ported, in turns.

It says what compiling is worth.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from porting.bench.benchmark_files import FileEntry
from porting.bench.case_tables import (
    lay_out_machinery,
    lay_out_orders,
    lay_out_start_up,
    lay_out_table,
    list_way_tables,
    read_counted_speed_up,
)
from porting.bench.choices import EAGER_WAYS, MATRIX_KEYS, NAMED_SETTINGS, PRECISIONS, BenchSettings
from porting.bench.command_cases import (
    DEFAULT_TIMEOUT,
    choose_cases,
    choose_entries,
    choose_suite,
    find_demanded_mean,
    load_workloads,
    make_cases,
    parse_part,
    read_matrix,
)
from porting.bench.curve import list_curves, make_curve_table
from porting.bench.growth import list_growths, make_growth_table
from porting.bench.pages import lay_out_result, list_failures
from porting.bench.processes import Case, run_case
from porting.bench.results import ResultFile, read_results, run_elsewhere
from porting.bench.tables import Table, lay_out_tables, name_case
from porting.cli import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_RUN, count, positive
from porting.cli.completion import offer
from porting.cli.output_files import require_folders, write_output
from porting.cli.sweeps import ON_HELP, Cluster, hold_results, parse_cluster, tell_sweep
from porting.diagnostics import render_all, show
from porting.engines import list_choices, require_engine

__all__ = ["add_arguments", "run"]

_EPILOG = """\
PROGRAM:FUNCTION is one of
  train.py:make          a function that gives (model, loss, batch[, optimizer[,
  package.module:make    options]]), or such a tuple, dictionary or object
  mushrooms, suite       a workload of the repository's suite, or all (--list)
  public                 models of timm, torchvision and transformers, against
                         the best of several ways to train without the port
  overhead               what a simulated call costs without compiled engines
  start_up               what it costs to get to the first step
  orders                 peak memory by computation order
  growth                 how times grow with layers, batch, accumulation, replicas
  benchmarks.yml         a file of entries; .json is read as well

a session:
  $ porting bench train.py:make --engine auto
  $ porting bench train.py:make --matrix batch=8,16 engine=replay,auto \\
      --json now.json --html now.html
  $ porting bench train.py:make --compare now.json
  $ porting bench benchmarks.yml --json suite.json
  $ porting bench --suite public --json public.json --resume --on local:2

A ratio above 1 says that the port is faster than eager. Every case of a matrix
runs in a process of its own.

After an interrupt the result file holds what was measured.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.usage = "%(prog)s [options] PROGRAM:FUNCTION"
    parser.add_argument("target", nargs="?", metavar="PROGRAM:FUNCTION", help="what is measured, see below")
    parser.add_argument("--list", action="store_true", dest="list_workloads", help="list the workloads that have names")
    for title, options in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for flag, settings in options.items():
            name = flag.replace("-", "_")
            choices: Mapping[str, Any] = {"choices": NAMED_SETTINGS[name]} if name in NAMED_SETTINGS else {}
            action = group.add_argument(f"--{flag}", *_FORMER_FLAGS.get(flag, ()), **choices, **settings)
            if flag == "engine":
                offer(action, list_choices)


def _parse_ways(text: str) -> Tuple[str, ...]:
    ways = tuple(text.split(","))
    if set(ways) - set(EAGER_WAYS):
        raise argparse.ArgumentTypeError(f"known are {_WAYS}")
    return ways


_DEFAULTS, _QUICK = BenchSettings(), BenchSettings().quick()
_COUNT: Mapping[str, Any] = {"type": count, "metavar": "N"}
_SWITCH: Mapping[str, Any] = {"action": "store_true", "default": None}
_SECONDS: Mapping[str, Any] = {"type": positive, "metavar": "S"}
_WAYS = ", ".join(EAGER_WAYS)
_FILE: Mapping[str, Any] = {"type": Path, "metavar": "FILE"}
# programs of users name them
_FORMER_FLAGS: Mapping[str, Tuple[str, ...]] = {"case-timeout": ("--cell-timeout",)}

# those whose destination is a field of `BenchSettings` go before the settings of a file
_OPTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "which part": {
        "suite": {"metavar": "NAME", "help": "a suite by its name, in place of PROGRAM:FUNCTION"},
        "only": {"nargs": "+", "default": [], "metavar": "NAME", "help": "those whose name fits, as public_res*"},
        "part": {"type": parse_part, "metavar": "K/N", "help": "the K-th of N parts of all cases"},
        "resume": {"action": "store_true", "help": "go on with the file of --json: cases that are done stay"},
    },
    "where it runs": {
        "on": {"type": parse_cluster, "default": Cluster(), "metavar": "CLUSTER", "help": ON_HELP},
    },
    "what is varied": {
        "engine": {"metavar": "NAME", "help": "auto, replay, aot, ... (default: the target's, or auto)"},
        "batch": {**_COUNT, "help": "samples of a micro-batch (default: the target's)"},
        "precision": {"choices": PRECISIONS, "help": "of the port (default: the target's, or float32)"},
        "matrix": {
            "nargs": "+",
            "default": [],
            "metavar": "KEY=A,B",
            "help": f"all combinations are measured; keys: {', '.join(MATRIX_KEYS)}",
        },
        "repeats": {**_COUNT, "help": f"processes for each case (default: {FileEntry.repeats})"},
    },
    "how it is measured": {
        "rounds": {**_COUNT, "help": f"turns of each side (default: {_DEFAULTS.rounds})"},
        "steps": {**_COUNT, "dest": "calls_per_turn", "help": "calls of a turn (default: those of --seconds)"},
        "seconds": {**_SECONDS, "dest": "turn_seconds", "help": f"of a turn (default: {_DEFAULTS.turn_seconds})"},
        "quick": {"action": "store_true", "help": f"{_QUICK.rounds} short rounds, and the steady state alone"},
        "start-up": {**_COUNT, "dest": "start_up_runs", "help": "time N fresh processes of each side as well"},
        "cold-starts": {**_COUNT, "help": "and N of the port without an executable on disk"},
        "limits": {**_SWITCH, "help": "set steps against what this machine attains with --quick, too"},
        "growth": {**_SWITCH, "help": "measure what calls take beyond operators, and how that grows in a --matrix"},
        "curve": {**_SWITCH, "help": "time fresh processes of each side to 1, 2, 5, ... steps as well"},
        "curve-runs": {**_COUNT, "help": f"processes of each side of a curve (default: {_DEFAULTS.curve_runs})"},
        "curve-seconds": {
            **_SECONDS,
            "help": f"that eager has for the steps of a curve (default: {_DEFAULTS.curve_seconds:g})",
        },
        "loader": {"metavar": "PROGRAM:FUNCTION", "help": "dataset or DataLoader for the data path, as train.py:data"},
        "threads": {**_COUNT, "help": "threads of torch on both sides"},
        "device": {"help": f"of the port (default: {_DEFAULTS.device})"},
        "eager-precision": {"help": "of the eager side, by autocast"},
        "eager-memory-format": {"help": f"(default: {_DEFAULTS.eager_memory_format})"},
        "eager-optimizer": {"help": f"torch's kernels of the eager side (default: {_DEFAULTS.eager_optimizer})"},
        "eager-compiler": {"help": f"inductor for torch.compile (default: {_DEFAULTS.eager_compiler})"},
        "against": {"type": _parse_ways, "metavar": "A,B", "help": f"time these as well, in turns: {_WAYS}"},
        "cache-dir": {"type": Path, "metavar": "DIR", "help": "keep executables (default: compile cold)"},
        "case-timeout": {**_SECONDS, "help": f"seconds after which a case is given up (default: {DEFAULT_TIMEOUT:g})"},
    },
    "what is written": {
        "json": {**_FILE, "help": "results, written anew after every case"},
        "html": {**_FILE, "help": "one page with picture, table and details"},
        "png": {**_FILE, "help": "the picture alone"},
        "compare": {"type": Path, "metavar": "EARLIER", "help": "results of an earlier run to compare with"},
    },
}


def run(arguments: argparse.Namespace) -> int:
    """Measure what is asked for and print it.

    Raises PortingError E029, P004, T001, T002, T005, T006, T007, T008 or X001 before anything runs.
    """
    if arguments.list_workloads:
        return _show_workloads(as_json=arguments.format == "json")
    _check_usage(arguments)
    require_folders(arguments.json, arguments.html, arguments.png)
    matrix = read_matrix(arguments)
    target = arguments.target or choose_suite(arguments.suite)
    entries, findings = choose_entries(target, only=arguments.only)
    if findings:
        show(render_all(findings, arguments.format), sys.stderr)
        return EXIT_NOT_RUN
    earlier = read_results(arguments.compare) if arguments.compare is not None else None
    if arguments.png is not None:
        from porting.bench.charts import require_matplotlib

        require_matplotlib()
    if arguments.html is not None:
        from porting.bench.html_page import require_page_makers

        require_page_makers()
    all_cases = [
        (case, arguments.case_timeout or entry.timeout or DEFAULT_TIMEOUT)
        for entry in entries
        for case in make_cases(entry, matrix, arguments)
    ]
    cases = choose_cases(all_cases, arguments.part)
    for engine in dict.fromkeys(case.choices.engine for case, _timeout in cases):
        require_engine(engine or "auto")
    with hold_results(arguments.json, "bench"):
        results = ResultFile(
            [case for case, _timeout in cases],
            arguments.json,
            earlier=read_results(arguments.json) if arguments.resume and arguments.json.exists() else None,
            demanded_mean=find_demanded_mean(target, num_entries=len(entries)),
        )
        # ended from outside, it ends what it has started as well
        before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        try:
            interrupted = _measure_cases(cases, results, arguments)
        finally:
            signal.signal(signal.SIGTERM, before)
    _tell_results(results, earlier, arguments)
    if interrupted:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return _choose_status([record["result"] for record in results.own_cases])


def _show_workloads(*, as_json: bool) -> int:
    workloads = load_workloads().WORKLOADS
    if as_json:
        listed = [
            {"name": name, "batch": entry.batch, "title": entry.title, "demanded": dict(entry.demanded)}
            for name, entry in workloads.items()
        ]
        print(json.dumps(listed, indent=2))
        return EXIT_DONE
    for name, entry in workloads.items():
        demands = ", ".join(f"{precision} x{value:g}" for precision, value in entry.demanded.items())
        print(f"{name:<36} batch {entry.batch:>3}  {entry.title:<50} {demands}".rstrip())
    return EXIT_DONE


def _choose_status(measured: Sequence[Any]) -> int:
    """Choose the exit status of some results, of which None stands for a case that has none."""
    if any(result is None for result in measured):
        return EXIT_NOT_RUN
    return EXIT_FAILED if any(map(list_failures, measured)) else EXIT_DONE


def _check_usage(arguments: argparse.Namespace) -> None:
    if arguments.target is None and arguments.suite is None:
        arguments.wrong_usage("what is to be measured? Name it, as train.py:make, or ask for the --list")
    if arguments.target is not None and arguments.suite is not None:
        arguments.wrong_usage(f"`{arguments.target}` and --suite {arguments.suite} are two targets: name one of them")
    if arguments.resume and arguments.json is None:
        arguments.wrong_usage("--resume goes on with the file of --json: name it")


# -- measuring ---------------------------------------------------------------------------------------------------------


def _measure_cases(cases: Sequence[Tuple[Case, float]], results: ResultFile, arguments: argparse.Namespace) -> bool:
    """Run the cases; return whether an interrupt ended it."""
    titles = [name_case(case.record("not_run")) for case, _timeout in cases]
    waiting = {index: case for index, case in enumerate(cases) if results.own_cases[index]["status"] != "done"}

    def put(index: int, record: Dict[str, Any]) -> str:
        results.put(index, record)
        speed_up = None if record["result"] is None else read_counted_speed_up(record["result"])
        became = f"{record['status']} after" if speed_up is None else f"x{speed_up['wall']['median']:.2f} in"
        return f"{became.replace('_', ' ')} {record['seconds']:.0f} s"

    told = {"cache_dir": None if arguments.cache_dir is None else str(arguments.cache_dir.absolute())}
    run = run_case if arguments.on.kind == "local" else run_elsewhere
    sweep = results.content["created"]
    if tell_sweep(arguments.on, titles, waiting, run, told=told, sweep=sweep, put=put):
        return True
    results.finish()
    return False


# -- telling -----------------------------------------------------------------------------------------------------------


def _tell_results(results: ResultFile, earlier: Optional[Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    """Write the files that were asked for, and print the page of one case or the table of several."""
    from porting.bench.comparison import make_comparison_table

    compared = None if earlier is None else make_comparison_table(earlier, results.content)
    if arguments.html is not None:
        from porting.bench.html_page import write_html

        write_output(arguments.html, write_html(results.content, comparison=compared).encode())
    if arguments.png is not None:
        from porting.bench.charts import write_png

        write_png(results.content, arguments.png)
    if arguments.format == "json":
        print(json.dumps(results.content, indent=2, allow_nan=False))
    else:
        _print_tables(results, compared)
    for file in filter(None, (arguments.json, arguments.html, arguments.png)):
        print(f"wrote {file}", file=sys.stderr)


def _write_machine(machine: Mapping[str, Any]) -> str:
    return f"{machine['processor']}, {machine['num_cores']} cores, Python {machine['python']}, torch {machine['torch']}"


def _print_tables(results: ResultFile, compared: Optional[Table]) -> None:
    machine = results.content["machine"]
    ran_on = Counter(_write_machine(case.get("machine") or machine) for case in results.cases)
    for described, number in ran_on.items():
        print(described if len(ran_on) == 1 else f"{described}: {number} of {len(results.cases)} cases")
    # the load of other programs only: that of the minute before this one began
    if (machine["load_average"] or 0.0) > machine["num_cores"] / 2 and machine["omp_num_threads"] != "1":
        print(f"the machine was busy (load {machine['load_average']:.1f}), and threads that wait for each other say")
        print("little then: try --threads 1 with OMP_NUM_THREADS=1")
    cases = results.cases
    only = cases[0]["result"] if len(cases) == 1 else None
    shown = [*lay_out_table(cases), *lay_out_start_up(cases)] if only is None else list(lay_out_result(only))
    kinds: Sequence[Sequence[Table]] = (
        list_way_tables(cases, summary=results.content["summary"]),
        [make_curve_table(curve, name=name) for name, curve in list_curves(cases)],
        [make_growth_table(growth) for growth in list_growths(cases)],
        [] if compared is None else [compared],
    )
    below = [*lay_out_orders(cases), *lay_out_machinery(cases)]
    for lines in filter(None, (shown, below, *(list(lay_out_tables(tables)) for tables in kinds))):
        print("\n".join(["", *lines]))
