"""`bench` measures a model in plain eager PyTorch and the same model ported, in turns, on equal batches and seeds.

`porting bench` calls `measure` in a process for each case; programs call `bench`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

import torch
from torch import nn

from porting.bench.against import EagerWays
from porting.bench.children import (
    Memory,
    StartUp,
    measure_curve,
    measure_layout_copies,
    measure_memory,
    measure_start_up,
)
from porting.bench.choices import NOT_ASKED_FOR, BenchSettings
from porting.bench.curve import Curve
from porting.bench.data_path import DataPath, DataSource, generate_dataset, make_plain_batches, measure_data_path
from porting.bench.eager import EagerSide
from porting.bench.layout_copies import LayoutCopies
from porting.bench.limits import Limits, count_work, find_limits, measure_rates
from porting.bench.machinery import Machinery, measure_machinery
from porting.bench.parity import Parity, compare_losses, measure_weight_difference
from porting.bench.ported import CompileCost, PortedSide, choose_losses
from porting.bench.report import BenchReport, Side, find_break_even_steps
from porting.bench.turns import Turn, Turns, divide_times, time_calls, time_sides
from porting.bench.workloads import Batch, Loss, MakeOptimizer, Source, Workload, pickle_workload
from porting.comparison.tensors import change_weights
from porting.options import PortOptions
from porting.support.process_outcomes import Progress

__all__ = ["bench", "measure"]


def bench(
    model: nn.Module,
    loss: Optional[Loss],
    batch: Batch,
    *,
    optimizer: Union[torch.optim.Optimizer, MakeOptimizer, None] = None,
    options: Optional[PortOptions] = None,
    engine: Optional[str] = None,
    dataset: Optional[DataSource] = None,
    settings: Optional[BenchSettings] = None,
    name: str = "",
    loss_settings: Optional[Mapping[str, Any]] = None,
    **changes: Any,
) -> BenchReport:
    """Measure training of `model` in plain eager PyTorch against the same ported with `options`.

    `batch` is a combined batch, as `to_ipu(example=...)` takes it. `optimizer` is a torch optimizer of the model's
    parameters or a function of parameters that makes one. `engine` takes the place of the options' one. `dataset` (a
    dataset or DataLoader) is what the data path is measured with; without it, one is made of the batch.
    `loss_settings` are arguments of `to_ipu` such as `label`. Further keywords are fields of `BenchSettings`, as in
    `rounds=5`.

    Neither the model nor the optimizer is changed: both sides train copies. Without `cache_dir` in the options,
    executables go to a folder that is deleted afterwards, so that compiling is measured cold. The eager side, peak
    memory and start-up are measured in processes that unpickle the model: what cannot be pickled is timed in this
    process and lacks the other figures, and the report says why.

    >>> report = bench(
    ...     nn.Linear(4, 3),
    ...     nn.CrossEntropyLoss(),
    ...     (torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)),
    ...     engine="replay",
    ...     settings=BenchSettings().quick(),
    ... )
    >>> report.parity.verdict, report.samples_per_step
    ('pass', 6)
    """
    settings = dataclasses.replace(settings or BenchSettings(), **changes)
    options = options if options is not None else PortOptions()
    if engine is not None:
        options = options.replace(engine=engine)
    workload = Workload(
        model, loss, batch, optimizer, options, name or type(model).__name__, loss_settings=dict(loss_settings or {})
    )
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as folder:
        if options.cache_dir is None:
            workload = dataclasses.replace(workload, options=options.replace(cache_dir=Path(folder) / "cache"))
        source, reason = pickle_workload(workload, Path(folder))
        return measure(workload, settings=settings, source=source, no_source=reason, dataset=dataset)


def measure(
    workload: Workload,
    *,
    settings: BenchSettings,
    source: Optional[Source] = None,
    no_source: str = "",
    dataset: Optional[DataSource] = None,
    progress: Progress = lambda _text, _share: None,
) -> BenchReport:
    """Measure `workload`; `source` makes it again in other processes, and `no_source` says why there is none."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        progress("compiling", 0.0)
        eager = EagerSide(workload, **settings.of_eager)
        pair = _Pair(workload, settings, progress, eager, PortedSide(workload, device=settings.device))
        cost = pair.ported.compile()
        progress("comparing losses", 0.3)
        parity, first_seconds = _compare_first_steps(pair)
        progress("timing", 0.4)
        with EagerWays(workload, source, settings) as ways:
            turns, calls_per_turn = _time_steady_state(pair, ways)
        sides = _sum_up_sides(pair, turns, first_seconds, _measure_data_paths(pair, dataset))
        if "eager" not in ways.turns:
            described = f"{eager.described}, in the process of the port"
            sides["eager"] = dataclasses.replace(sides["eager"], described=described)
        machinery = _measure_machinery(pair, cost)
        proof, findings, candidates = pair.ported.describe()
        limits = _measure_limits(pair, sides)
        in_processes = _measure_processes(pair, source, no_source)
        progress("done", 1.0)
        return BenchReport(
            name=workload.name,
            precision=pair.ported.options.precision,
            engine=pair.ported.options.engine or "auto",
            samples_per_step=workload.samples_per_step,
            steps_per_call=workload.steps_per_call,
            num_parameters=workload.num_parameters,
            calls_per_turn=calls_per_turn,
            num_threads=torch.get_num_threads(),
            eager=sides["eager"],
            ported=sides["ported"],
            speed_up=divide_times(turns["eager"], turns["ported"]),
            against=ways.sum_up(turns, steps_per_call=workload.steps_per_call),
            compilation=cost,
            break_even_steps=find_break_even_steps(
                cost.total_seconds, **{f"{name}_seconds": side.step_seconds.median for name, side in sides.items()}
            ),
            parity=parity,
            device=proof,
            limits=limits,
            machinery=machinery,
            **in_processes,
            candidates=candidates,
            findings=findings,
            trains=workload.trains,
            settings=settings,
        )


class _Pair(NamedTuple):
    """Both sides of a workload in this process, and what every measurement of them is told."""

    workload: Workload
    settings: BenchSettings
    progress: Progress
    eager: EagerSide
    ported: PortedSide


def _sum_up_sides(
    pair: _Pair, turns: Mapping[str, Turns], first_seconds: Mapping[str, float], data: Mapping[str, Optional[DataPath]]
) -> Dict[str, Side]:
    steps_per_call, sides = pair.workload.steps_per_call, {}
    for name, text in (("eager", pair.eager.described), ("ported", f"{pair.ported.options.precision}, ported")):
        timing, spread = turns[name].timing, turns[name].spread(steps_per_call=steps_per_call)
        sides[name] = Side(
            described=text,
            first_step_seconds=first_seconds[name],
            step_seconds=spread,
            cpu_seconds=timing.cpu.median / steps_per_call,
            samples_per_second=pair.workload.samples_per_step / spread.median,
            round_seconds=tuple(seconds / steps_per_call for seconds in timing.wall_seconds),
            data=data.get(name),
        )
    return sides


def _measure_machinery(pair: _Pair, cost: CompileCost) -> Machinery:
    if not pair.settings.growth:
        return Machinery(reason=NOT_ASKED_FOR)
    port_again = functools.partial(PortedSide, pair.workload, device=pair.settings.device)
    return measure_machinery(pair.ported, port_again, compile_seconds=cost.compile_seconds or 0.0)


def _measure_limits(pair: _Pair, sides: Mapping[str, Side]) -> Limits:
    """Compare the times of both sides with the least that this machine needs, if it is what runs the port."""
    if not pair.settings.limits or not pair.ported.is_simulated:
        return Limits(reason="an IPU runs the port" if pair.settings.limits else NOT_ASKED_FOR)
    pair.progress("measuring the machine", 0.76)
    times = {f"{name}_seconds": side.step_seconds.median for name, side in sides.items()}
    return find_limits(measure_rates(), count_work(pair.eager.call, steps=pair.workload.steps_per_call), **times)


def _measure_processes(pair: _Pair, source: Optional[Source], no_source: str) -> Dict[str, Any]:
    """Measure what needs processes of their own and was asked for, as fields of the report."""
    settings, engine = pair.settings, pair.ported.options.engine or "auto"
    find_curve = functools.partial(measure_curve, engine=engine, steps_per_call=pair.workload.steps_per_call)
    # no IPU tells what it copies
    counts_copies = settings.layouts and pair.ported.is_simulated
    sections: Dict[str, Tuple[Any, bool, float, str, Callable[[Source, BenchSettings], object]]] = {
        "memory": (Memory, settings.memory, 0.77, "measuring memory", measure_memory),
        "layout_copies": (LayoutCopies, counts_copies, 0.78, "counting layout copies", measure_layout_copies),
        "start_up": (StartUp, settings.start_up_runs > 0, 0.8, "timing the start", measure_start_up),
        "curve": (Curve, settings.curve, 0.85, "timing the way to N steps", find_curve),
    }
    measured: Dict[str, Any] = {}
    for name, (section, is_asked, share, told, find) in sections.items():
        if is_asked and source is not None:
            pair.progress(told, share)
            measured[name] = find(source, settings)
        elif is_asked:
            measured[name] = section(reason=no_source)
    return measured


# -- the first steps ---------------------------------------------------------------------------------------------------

_MIN_COMPARED_CALLS = 3


def _compare_first_steps(pair: _Pair) -> Tuple[Parity, Dict[str, float]]:
    """Take the first steps of both sides from the same random state; time the very first call of each."""
    workload, settings, _progress, eager, ported = pair
    num_calls = max(_MIN_COMPARED_CALLS, math.ceil(settings.parity_steps / workload.steps_per_call))
    first: Dict[str, float] = {}

    def losses_of(name: str, side: Union[EagerSide, PortedSide]) -> List[float]:
        torch.manual_seed(settings.seed)
        losses = []
        for _call in range(num_calls):
            start = time.perf_counter()
            returned = side.call()
            first.setdefault(name, (time.perf_counter() - start) / workload.steps_per_call)
            losses.append(_sum_up(workload, ported.options, returned))
        return losses

    def rounded_losses(number: int) -> List[float]:
        side = EagerSide(workload, memory_format=settings.eager_memory_format, precision=settings.eager_precision)
        change_weights(side.model.parameters(), number)
        return losses_of("rounded", side)

    expected, actual = losses_of("eager", eager), losses_of("ported", ported)
    difference = None
    if workload.trains:
        ported.ported.copy_weights_to_host()
        difference = measure_weight_difference(eager.model, ported.model)
    parity = compare_losses(
        expected,
        actual,
        precision=ported.options.precision,
        num_steps=num_calls * workload.steps_per_call,
        reference=lambda: losses_of("float64", EagerSide(workload, precision="float64")),
        rounded=rounded_losses,
        weight_difference=difference,
    )
    return parity, first


def _sum_up(workload: Workload, options: PortOptions, returned: Union[torch.Tensor, List[torch.Tensor]]) -> float:
    """Make one number of what a call of either side returns: the losses that come back, or the outputs of inference."""
    if not workload.trains:
        outputs = torch.cat(returned) if isinstance(returned, list) else returned
        return float(outputs.detach().double().abs().sum())
    chosen = torch.stack(choose_losses(options, returned)) if isinstance(returned, list) else returned
    losses = chosen.detach().double()
    # on the device, the output mode "sum" has added them up already
    return float(losses.sum() if options.output_mode == "sum" else losses.mean())


# -- the steady state --------------------------------------------------------------------------------------------------


def _time_steady_state(pair: _Pair, ways: EagerWays) -> Tuple[Dict[str, Turns], int]:
    """Time all sides in turns; return the turns, and how many calls each has."""
    ways.wait()
    settings = pair.settings
    sides: Dict[str, Callable[[int], Turn]] = {
        "eager": functools.partial(time_calls, pair.eager.call),
        "ported": functools.partial(time_calls, pair.ported.call),
        **ways.turns,
    }
    calls = settings.calls_per_turn
    if calls is None:
        trial = time_sides(sides, rounds=1, calls_per_turn=3)
        calls = max(1, round(settings.turn_seconds / trial["eager"].spread().median))
    turns = time_sides(
        sides,
        rounds=settings.rounds,
        calls_per_turn=calls,
        after_round=lambda number: pair.progress("timing", 0.4 + 0.3 * number / settings.rounds),
    )
    return turns, calls


# -- data --------------------------------------------------------------------------------------------------------------


def _measure_data_paths(pair: _Pair, dataset: Optional[DataSource]) -> Dict[str, Optional[DataPath]]:
    """Measure the data path of both sides; nothing where there are no data that a loader could load."""
    workload, settings, progress, eager, ported = pair
    source = "the given data" if dataset is not None else "the batch, repeated in a tensor dataset"
    data = dataset if dataset is not None else generate_dataset(workload)
    if not settings.data or data is None:
        return {}
    progress("loading data", 0.75)
    micro_batch = workload.rows // ported.options.micro_batches_per_call
    loader = ported.ported.dataloader(data, batch_size=micro_batch, drop_last=True)
    epochs: Dict[str, Tuple[Callable[[Batch], Any], Callable[[], Iterator[Batch]]]] = {
        "eager": (eager.call, make_plain_batches(workload, data)),
        "ported": (ported.call, lambda: iter(loader)),
    }
    seconds = settings.rounds * settings.turn_seconds / 4
    return {
        name: measure_data_path(train, begin, source=source, batch=workload.batch, seconds=seconds)
        for name, (train, begin) in epochs.items()
    }
