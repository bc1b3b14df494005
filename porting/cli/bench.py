"""`porting bench`: trains targets in plain eager PyTorch and ported, in turns, and says what compiling is worth."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from tqdm import tqdm

from porting.bench.benchmark_files import FileEntry, read_benchmarks
from porting.bench.cells import Cell, run_cell
from porting.bench.choices import COUNTS, MATRIX_KEYS, PRECISIONS, BenchSettings, expand
from porting.bench.results import ResultFile, read_results
from porting.cli import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, count
from porting.diagnostics import PortingError, render_all

__all__ = ["add_arguments", "run"]

_EPILOG = """\
PROGRAM:FUNCTION is one of
  train.py:make          a function that gives (model, loss, batch[, optimizer[,
  package.module:make    options]]), or such a tuple, dictionary or object
  mushrooms, suite       a workload of the repository's suite, or all (--list)
  overhead               what a simulated call costs without compiled engines
  start_up               what it costs to get to the first step
  orders                 peak memory by computation order
  benchmarks.yml         a file of entries; .json is read as well

a session:
  $ porting bench train.py:make --engine auto
  $ porting bench train.py:make --matrix batch=8,16 engine=replay,auto \\
      --json now.json --html now.html
  $ porting bench train.py:make --compare now.json
  $ porting bench benchmarks.yml --json suite.json

A ratio above 1 says that the port is faster than eager. Every cell of a matrix
runs in a process of its own.

exit status: 0 done, 1 a cell failed, or trained something else than eager did,
or a finding stopped it, 2 wrong usage, 130 interrupted (the result file then
holds what was measured)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.usage = "%(prog)s [options] PROGRAM:FUNCTION"
    parser.add_argument("target", nargs="?", metavar="PROGRAM:FUNCTION", help="what is measured, see below")
    parser.add_argument("--list", action="store_true", dest="list_workloads", help="list the workloads that have names")
    _add_choices(parser.add_argument_group("what is varied"))
    _add_measuring(parser.add_argument_group("how it is measured"))
    _add_outputs(parser.add_argument_group("what is written"))


def _add_choices(group: Any) -> None:
    group.add_argument("--engine", metavar="NAME", help="auto, replay, aot, ... (default: the target's, or auto)")
    group.add_argument("--batch", type=count, metavar="N", help="samples of a micro-batch (default: the target's)")
    group.add_argument("--precision", choices=PRECISIONS, help="of the port (default: the target's, or float32)")
    group.add_argument(
        "--matrix",
        nargs="+",
        default=[],
        metavar="KEY=A,B",
        help=f"all combinations are measured; keys: {', '.join(MATRIX_KEYS)}",
    )
    group.add_argument("--repeats", type=count, default=None, metavar="N", help="processes for each cell (default: 1)")


def _add_measuring(group: Any) -> None:
    group.add_argument("--rounds", type=count, metavar="N", help="turns of each side (default: 15)")
    group.add_argument("--steps", type=count, metavar="N", help="calls of a turn (default: those of --seconds)")
    group.add_argument("--seconds", type=_parse_positive, metavar="S", help="of a turn (default: 0.2)")
    group.add_argument("--quick", action="store_true", help="5 short rounds, and the steady state alone")
    group.add_argument("--start-up", type=count, metavar="N", help="time N fresh processes of each side as well")
    group.add_argument("--cold-starts", type=count, metavar="N", help="and N of the port without an executable on disk")
    group.add_argument(
        "--loader", metavar="PROGRAM:FUNCTION", help="dataset or DataLoader for the data path, as train.py:data"
    )
    group.add_argument("--threads", type=count, metavar="N", help="threads of torch on both sides")
    group.add_argument("--device", choices=("auto", "ipu", "sim"), help="of the port (default: auto)")
    group.add_argument(
        "--eager-precision", choices=("float32", "bfloat16", "float16"), help="of the eager side, by autocast"
    )
    group.add_argument("--eager-memory-format", choices=("contiguous", "channels-last"), help="(default: contiguous)")
    group.add_argument(
        "--eager-optimizer", choices=("fused", "default"), help="torch's kernels of the eager side (default: fused)"
    )
    group.add_argument("--cache-dir", type=Path, metavar="DIR", help="keep executables (default: compile cold)")
    group.add_argument(
        "--cell-timeout",
        type=_parse_positive,
        metavar="S",
        help="seconds after which a cell is given up (default: 1800)",
    )


def _add_outputs(group: Any) -> None:
    group.add_argument("--json", type=Path, metavar="FILE", help="results, written anew after every cell")
    group.add_argument("--html", type=Path, metavar="FILE", help="one page with picture, table and details")
    group.add_argument("--png", type=Path, metavar="FILE", help="the picture alone")
    group.add_argument("--compare", type=Path, metavar="EARLIER", help="results of an earlier run to compare with")


def run(arguments: argparse.Namespace) -> int:
    """Measure what is asked for and print it; raises PortingError T001, T002, T005 or X001 before anything runs."""
    if arguments.list_workloads:
        return _list_workloads()
    if arguments.target is None:
        arguments.wrong_usage("what is to be measured? Name it, as train.py:make, or ask for the --list")
    matrix = _read_matrix(arguments)
    entries, findings = _choose_entries(arguments)
    if findings:
        print(render_all(findings, arguments.format), file=sys.stderr)
        return EXIT_FAILED
    earlier = read_results(arguments.compare) if arguments.compare is not None else None
    if arguments.png is not None:
        from porting.bench.charts import require_matplotlib

        require_matplotlib()
    cells = [cell for entry in entries for cell in _make_cells(entry, matrix, arguments)]
    timeouts = [entry.timeout for entry in entries for _ in _make_cells(entry, matrix, arguments)]
    results = ResultFile(cells, arguments.json)
    # ended from outside, it ends what it has started as well
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        interrupted = _measure_cells(cells, timeouts, results, arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    _write_results(results.content, earlier, arguments)
    _print_results(results, earlier)
    for file in (arguments.json, arguments.html, arguments.png):
        if file is not None:
            print(f"wrote {file}", file=sys.stderr)
    if interrupted:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_DONE if all(_is_good(record) for record in results.cells) else EXIT_FAILED


# -- what is measured --------------------------------------------------------------------------------------------------


def _choose_entries(arguments: argparse.Namespace) -> Tuple[List[FileEntry], List[Any]]:
    target = arguments.target
    if target.endswith((".yml", ".yaml", ".json")):
        return read_benchmarks(Path(target))
    groups = _load_workloads().GROUPS
    if target in groups:
        return [_find_entry(name) for name in groups[target]], []
    if ":" in target:
        return [FileEntry(name=target.replace("\\", "/").rpartition("/")[2], target=target)], []
    if target not in _load_workloads().WORKLOADS:
        raise _make_unknown_error(target)
    return [_find_entry(target)], []


def _find_entry(name: str) -> FileEntry:
    demanded = _load_workloads().WORKLOADS[name].demanded
    return FileEntry(name=name, target=name, matrix={"precision": list(demanded) or ["float32"]})


def _load_workloads() -> Any:
    # they make models: this loads torch, which files of benchmarks and wrong usage do without
    from porting.bench import suite

    return suite


def _make_unknown_error(name: str) -> PortingError:
    import difflib

    known = [*_load_workloads().GROUPS, *_load_workloads().WORKLOADS]
    near = difflib.get_close_matches(name, known, n=1)
    path = f"name what the file is to be taken from it: `{name}:NAME`" if name.endswith(".py") else ""
    remedies = [f"did you mean `{near[0]}`?"] if near else []
    remedies += [path] if path else ["`porting bench --list` lists the suite; a target of yours is `file.py:name`"]
    return PortingError.of("T002", message=f"there is no benchmark `{name}`", help=remedies)


def _read_matrix(arguments: argparse.Namespace) -> Dict[str, List[Any]]:
    """Read `--matrix`, with `--batch` and the like as lists of one."""
    matrix: Dict[str, List[Any]] = {}
    for word in arguments.matrix:
        key, equals, values = word.partition("=")
        if not equals or key not in MATRIX_KEYS:
            arguments.wrong_usage(f"--matrix {word}: write KEY=A,B with one of {', '.join(MATRIX_KEYS)}")
        try:
            matrix[key] = [count(value) if key in COUNTS else value for value in values.split(",")]
        except (ValueError, argparse.ArgumentTypeError):
            arguments.wrong_usage(f"--matrix {word}: {key} takes numbers from 1 on")
        wrong = [value for value in matrix[key] if not value or (key == "precision" and value not in PRECISIONS)]
        if wrong:
            arguments.wrong_usage(f"--matrix {word}: {wrong[0]!r} is no {key}; known are {', '.join(PRECISIONS)}")
    for key in ("batch", "precision", "engine"):
        value = getattr(arguments, key)
        if value is not None and key in matrix:
            arguments.wrong_usage(f"--{key} and --matrix {key}=... say it twice")
        if value is not None:
            matrix[key] = [value]
    return matrix


def _make_cells(entry: FileEntry, matrix: Mapping[str, Sequence[Any]], arguments: argparse.Namespace) -> Iterator[Cell]:
    """Make the cells of an entry; what the command line says goes before what the file says."""
    is_own = ":" not in entry.target
    if is_own and entry.target not in _load_workloads().WORKLOADS:
        raise _make_unknown_error(entry.target)
    own = _load_workloads().WORKLOADS[entry.target] if is_own else None
    loader = "porting.bench.suite:load" if is_own else "porting.cli.bench_programs:load"
    loaded_data = arguments.loader or entry.loader
    combined = {"engine": ["auto"], **(own.matrix if own else {}), **entry.matrix, **matrix}
    settings = _read_settings({**(own.settings if own else {}), **entry.settings}, arguments)
    for choices in expand(combined):
        for repeat in range(1, (arguments.repeats or entry.repeats) + 1):
            yield Cell(
                name=entry.name,
                target=entry.target,
                loader=loader,
                arguments={"name" if is_own else "target": entry.target, "choices": dataclasses.asdict(choices)},
                choices=choices,
                settings=dataclasses.replace(settings, threads=choices.threads or settings.threads),
                repeat=repeat,
                demanded=_find_demand(entry, own, choices.precision or "float32"),
                dataset_loader="porting.cli.bench_programs:load_data" if loaded_data else None,
                dataset_arguments={"target": loaded_data} if loaded_data else {},
            )


def _find_demand(entry: FileEntry, own: Any, precision: str) -> Optional[float]:
    demanded = entry.demand if entry.demand is not None or own is None else own.demanded
    return None if demanded is None else demanded.get(precision)


def _read_settings(given_by_entry: Mapping[str, Any], arguments: argparse.Namespace) -> BenchSettings:
    settings = BenchSettings(**given_by_entry)
    if arguments.quick:
        settings = settings.quick()
    given = {
        "rounds": arguments.rounds,
        "calls_per_turn": arguments.steps,
        "turn_seconds": arguments.seconds,
        "start_up_runs": arguments.start_up,
        "cold_starts": arguments.cold_starts,
        "threads": arguments.threads,
        "device": arguments.device,
        "eager_precision": arguments.eager_precision,
        "eager_memory_format": arguments.eager_memory_format,
        "eager_optimizer": arguments.eager_optimizer,
    }
    return dataclasses.replace(settings, **{key: value for key, value in given.items() if value is not None})


def _list_workloads() -> int:
    for name, entry in _load_workloads().WORKLOADS.items():
        demands = ", ".join(f"{precision} x{value:g}" for precision, value in entry.demanded.items())
        print(f"{name:<36} batch {entry.batch:>3}  {entry.title:<50} {demands}".rstrip())
    return EXIT_DONE


# -- measuring ---------------------------------------------------------------------------------------------------------

_DEFAULT_TIMEOUT = 1800.0


def _measure_cells(
    cells: Sequence[Cell], timeouts: Sequence[Optional[float]], results: ResultFile, arguments: argparse.Namespace
) -> bool:
    """Run cell after cell; return whether an interrupt ended it. A terminal gets a progress bar, a log a line each."""
    from porting.bench.pages import cell_title

    cache_dir = None if arguments.cache_dir is None else str(arguments.cache_dir.absolute())
    with tqdm(total=len(cells), disable=None, bar_format=_BAR) as bar:
        for index, cell in enumerate(cells):
            title = cell_title(cell.record("not_run"))

            def progress(text: str, share: float, index: int = index, title: str = title) -> None:
                bar.set_description_str(f"{title}: {text}", refresh=False)
                bar.n = index + share
                bar.refresh()

            progress("starting", 0.0)
            timeout = arguments.cell_timeout or timeouts[index] or _DEFAULT_TIMEOUT
            try:
                record = run_cell(cell, cache_dir=cache_dir, timeout=timeout, progress=progress)
            except KeyboardInterrupt:
                results.put(index, cell.record("interrupted", reason="Ctrl-C"))
                return True
            results.put(index, record)
            bar.n = index + 1
            if bar.disable:
                print(f"[{index + 1}/{len(cells)}] {title}: {_summarise_cell(record)}", file=sys.stderr, flush=True)
    results.finish()
    return False


_BAR = "{desc} |{bar:20}| {percentage:3.0f}% [{elapsed}]"


def _summarise_cell(record: Mapping[str, Any]) -> str:
    if record["result"] is None:
        return f"{record['status'].replace('_', ' ')} after {record['seconds']:.0f} s"
    return f"x{record['result']['speed_up']['wall']['median']:.2f} in {record['seconds']:.0f} s"


def _is_good(record: Mapping[str, Any]) -> bool:
    result = record["result"]
    return result is not None and result["parity"]["verdict"] != "fail" and result["device"]["is_proven"]


# -- telling -----------------------------------------------------------------------------------------------------------


def _write_results(
    content: Mapping[str, Any], earlier: Optional[Mapping[str, Any]], arguments: argparse.Namespace
) -> None:
    from porting.support.atomic_files import write_atomically

    if arguments.html is not None:
        from porting.bench.comparison import comparison_lines
        from porting.bench.html_page import html_page

        lines = list(comparison_lines(earlier, content)) if earlier is not None else []
        write_atomically(arguments.html, html_page(content, comparison=lines).encode())
    if arguments.png is not None:
        from porting.bench.charts import write_png

        write_png(content, arguments.png)


def _print_results(results: ResultFile, earlier: Optional[Mapping[str, Any]]) -> None:
    from porting.bench.comparison import comparison_lines
    from porting.bench.pages import machinery_lines, order_lines, result_lines, start_up_lines, table_lines

    machine = results.content["machine"]
    print(f"{machine['processor']}, {machine['num_cores']} cores, Python {machine['python']}, torch {machine['torch']}")
    # the load of other programs only: that of the minute before this one began
    if (machine["load_average"] or 0.0) > machine["num_cores"] / 2 and machine["omp_num_threads"] != "1":
        print(f"the machine was busy (load {machine['load_average']:.1f}), and threads that wait for each other say")
        print("little then: try --threads 1 with OMP_NUM_THREADS=1")
    print()
    only = results.cells[0]["result"] if len(results.cells) == 1 else None
    if only is not None:
        print("\n".join(result_lines(only)))
    else:
        print("\n".join([*table_lines(results.cells), *start_up_lines(results.cells)]))
    below = [*order_lines(results.cells), *machinery_lines(results.cells)]
    if below:
        print()
        print("\n".join(below))
    if earlier is not None:
        print()
        print("\n".join(comparison_lines(earlier, results.content)))


def _parse_positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value
