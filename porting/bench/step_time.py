"""Time of a simulated step over that of a plain eager one: `python -m porting.bench.step_time`.

`--json FILE` writes `schema` (2), `machine`, `num_cores`, `python`, `torch`, `num_threads`, `dtype`, `load_average` (of
the minute before; null where the system does not tell), `rounds`, `fused` and `cases`.

A case has `name`, `optimizer` ("-" for inference), `batch_size`, `num_micro_batches`, `num_parameters`,
`steps_per_turn`, `eager` and `simulated` (each with
`wall_seconds` and `cpu_seconds` of one step: `median`, `low` and `high` quartile), `ratio` (of wall times: `median`,
and `low` and `high` of its 95 % interval), `cpu_ratio` (of the medians) and `loss_difference`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import nn

import porting.simulator as poptorch
from porting.adapters import LossInForward, to_backend_optimizer
from porting.bench.machine import processor_name
from porting.command_line import count
from porting.interleaved import Interval, Timing, ratio, time_interleaved
from porting.models import make_cnn, make_mlp

__all__ = ["CASES", "Case", "Result", "main", "measure"]

_TURN_SECONDS = 0.1
_NUM_WARM_UP_STEPS = 5

_DESCRIPTION = """\
Time one step of the same model in plain eager PyTorch and on the simulator, in turns, in one process: a training step
(forward, loss, backward, optimizer), also with its batch in micro-batches whose gradients accumulate, or inference.
Both sides have torch's default settings of the optimizer: plain loops over the parameters on the CPU for eager, unless
--fused asks for torch's fused kernels. The simulator repeats the default's arithmetic to the last bit, except that
small micro-batches run several at once.
"""


@dataclass(frozen=True)
class Case:
    """A model with the shape of its batches and the name of its optimizer; "-" is inference.

    A batch of `micro_batches` is computed one after the other by both sides.
    """

    name: str
    make_model: Callable[[], nn.Module]
    input_shape: Tuple[int, ...]
    optimizer: str = "SGD"
    num_classes: int = 10
    micro_batches: int = 1

    @property
    def trains(self) -> bool:
        """Whether a step is one of training."""
        return self.optimizer != "-"

    def batch(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """Make a batch of random inputs and labels."""
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(self.input_shape, generator=generator)
        return inputs, torch.randint(self.num_classes, self.input_shape[:1], generator=generator)

    def make_optimizer(self, model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
        """Make torch's optimizer with its default settings, and SGD's customary learning rate."""
        rates = {"SGD": 0.01, "Adam": 0.001}
        made: torch.optim.Optimizer = getattr(torch.optim, self.optimizer)(
            model.parameters(), lr=rates[self.optimizer], **settings
        )
        return made


CASES: Tuple[Case, ...] = (
    Case("MLP 784-1000-1000-10", make_mlp, (64, 784)),
    Case("MLP 784-1000-1000-10", make_mlp, (64, 784), "Adam"),
    Case("CNN 28x28, BatchNorm", make_cnn, (32, 1, 28, 28)),
    Case("CNN 28x28, BatchNorm", make_cnn, (32, 1, 28, 28), "Adam"),
    Case("MLP 784-1000-1000-10", make_mlp, (64, 784), "-"),
    Case("CNN 28x28, BatchNorm", make_cnn, (32, 1, 28, 28), "-"),
    Case("MLP 64-128-10", lambda: make_mlp((64, 128, 10)), (64, 64), micro_batches=16),
    Case("MLP 64-128-10", lambda: make_mlp((64, 128, 10)), (64, 64), "-", micro_batches=16),
    Case("CNN 28x28, BatchNorm", make_cnn, (32, 1, 28, 28), "-", micro_batches=32),
    Case("tiny: one 4-10 layer", lambda: make_mlp((4, 10)), (4, 4)),
    Case("tiny: one 4-10 layer", lambda: make_mlp((4, 10)), (4, 4), "-"),
)
"""What is measured: the bar of 1.1 is for the MLP and the CNN; the tiny models show what a call costs by itself."""


@dataclass(frozen=True)
class Result:
    """What was measured of one case; all times are those of one training step."""

    case: Case
    num_parameters: int
    steps_per_turn: int
    eager: Timing
    simulated: Timing
    loss_difference: float

    @property
    def ratio(self) -> Interval:
        """The simulated step's time over the eager one's, with a 95 % interval."""
        return ratio(self.simulated, self.eager)

    @property
    def cpu_ratio(self) -> float:
        """The same ratio for processor time, of the medians."""
        return self.simulated.cpu.median / self.eager.cpu.median

    def to_dict(self) -> Dict[str, Any]:
        """Return the result as plain values, fit for JSON."""
        return {
            "name": self.case.name,
            "optimizer": self.case.optimizer,
            "batch_size": self.case.input_shape[0],
            "num_micro_batches": self.case.micro_batches,
            "num_parameters": self.num_parameters,
            "steps_per_turn": self.steps_per_turn,
            "eager": _timing_dict(self.eager),
            "simulated": _timing_dict(self.simulated),
            "ratio": asdict(self.ratio),
            "cpu_ratio": self.cpu_ratio,
            "loss_difference": self.loss_difference,
        }


def measure(case: Case, *, rounds: int, fused: bool = False) -> Result:
    """Measure one case in `rounds` rounds; each side's turn in a round takes about 0.1 s.

    The losses of the first few steps are compared, so that both sides are known to do the same work:
    `loss_difference` is the largest relative one; of inference, that of the sums of the outputs.
    """
    inputs, labels = case.batch()
    if case.trains:
        eager, eager_losses = _started(_eager_step, case, inputs, labels, fused=fused)
        simulated, simulated_losses = _started(_simulated_step, case, inputs, labels)
    else:
        eager, eager_losses = _started(_eager_inference, case, inputs)
        simulated, simulated_losses = _started(_simulated_inference, case, inputs)
    sides = {"eager": eager, "simulated": simulated}
    step_seconds = time_interleaved(sides, rounds=3)["eager"].wall.median
    steps_per_turn = max(1, round(_TURN_SECONDS / step_seconds))
    timings = time_interleaved(sides, rounds=rounds, repeats=steps_per_turn, progress=f"{case.name}, {case.optimizer}")
    return Result(
        case=case,
        num_parameters=sum(parameter.numel() for parameter in case.make_model().parameters()),
        steps_per_turn=steps_per_turn,
        eager=timings["eager"],
        simulated=timings["simulated"],
        loss_difference=max(abs(one - other) / abs(one) for one, other in zip(eager_losses, simulated_losses)),
    )


def _started(
    make: Callable[..., Callable[[], Any]], *args: Any, **kwargs: Any
) -> Tuple[Callable[[], Any], List[float]]:
    """Make one side and take its first steps, from the same random state as the other's; return it and the losses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        step = make(*args, **kwargs)
        return step, [step().sum().item() for _ in range(_NUM_WARM_UP_STEPS)]


def _eager_step(case: Case, inputs: torch.Tensor, labels: torch.Tensor, *, fused: bool) -> Callable[[], Any]:
    model, criterion = case.make_model(), nn.CrossEntropyLoss()
    optimizer = case.make_optimizer(model, **({"fused": True} if fused else {}))

    batches = list(zip(inputs.chunk(case.micro_batches), labels.chunk(case.micro_batches)))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        for x, y in batches:
            loss: torch.Tensor = criterion(model(x), y)
            (loss / len(batches) if len(batches) > 1 else loss).backward()
        optimizer.step()
        return loss

    return step


def _simulated_step(case: Case, inputs: torch.Tensor, labels: torch.Tensor) -> Callable[[], Any]:
    model = case.make_model()
    optimizer = to_backend_optimizer(case.make_optimizer(model), model, backend=poptorch)
    options = poptorch.Options()
    options.showCompilationProgressBar(False)
    options.Training.gradientAccumulation(case.micro_batches)
    executor = poptorch.trainingModel(
        LossInForward(model, nn.CrossEntropyLoss(), backend=poptorch), options, optimizer=optimizer
    )
    executor.compile(inputs, labels)
    return lambda: executor(inputs, labels)[1]


def _eager_inference(case: Case, inputs: torch.Tensor) -> Callable[[], Any]:
    model, batches = case.make_model().eval(), inputs.chunk(case.micro_batches)

    def step() -> torch.Tensor:
        with torch.no_grad():
            outputs = [model(x) for x in batches]
            return torch.cat(outputs) if len(outputs) > 1 else outputs[0]

    return step


def _simulated_inference(case: Case, inputs: torch.Tensor) -> Callable[[], Any]:
    options = poptorch.Options().deviceIterations(case.micro_batches)
    options.showCompilationProgressBar(False)
    executor = poptorch.inferenceModel(case.make_model().eval(), options)
    executor.compile(inputs)
    return lambda: executor(inputs)


# -- the command -----------------------------------------------------------------------------------------------------


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Measure all cases and print a table; return the exit code, which says nothing about the times."""
    parser = argparse.ArgumentParser(prog="python -m porting.bench.step_time", description=_DESCRIPTION)
    parser.add_argument("--rounds", type=count, default=25, help="how often each side has its turn (default: 25)")
    parser.add_argument("--threads", type=count, default=None, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--fused", action="store_true", help="use torch's fused optimizers on the eager side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE as well")
    arguments = parser.parse_args(argv)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)

    conditions = {**_conditions(), "rounds": arguments.rounds, "fused": arguments.fused}
    print("\n".join(_heading(conditions)))
    results = []
    for case in CASES:
        results.append(measure(case, rounds=arguments.rounds, fused=arguments.fused))
        print(_row(results[-1]), flush=True)
    print(f"\nmachinery of a call: {_machinery(results)} (the tiny models' simulated less eager step)")
    print("ratio: simulated / eager, median of the rounds' ratios (95 % bootstrap interval); ms: median (quartiles)")
    if arguments.json is not None:
        report = {**conditions, "cases": [result.to_dict() for result in results]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _machinery(results: Sequence[Result]) -> str:
    """Say what a call costs by itself, from the models that compute next to nothing."""
    tiny = [result for result in results if result.case.name.startswith("tiny")]
    extra = [1e6 * (result.simulated.wall.median - result.eager.wall.median) for result in tiny]
    return ", ".join(
        f"{microseconds:.0f} us in {'training' if result.case.trains else 'inference'}"
        for result, microseconds in zip(tiny, extra)
    )


def _conditions() -> Dict[str, Any]:
    return {
        "schema": 2,
        "machine": processor_name(),
        "num_cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "num_threads": torch.get_num_threads(),
        "dtype": "float32",
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _timing_dict(timing: Timing) -> Dict[str, Any]:
    return {"wall_seconds": asdict(timing.wall), "cpu_seconds": asdict(timing.cpu)}


def _heading(conditions: Dict[str, Any]) -> Iterator[str]:
    busy = "" if conditions["load_average"] is None else f", load average {conditions['load_average']:.1f}"
    yield "one step: the simulator against plain eager PyTorch"
    yield "{machine}, {num_cores} cores{busy}; Python {python}, torch {torch}".format(busy=busy, **conditions)
    yield "{num_threads} thread(s), {dtype}, {rounds} rounds in turns, eager optimizers: {kernels}".format(
        kernels="torch's fused kernels" if conditions["fused"] else "torch's defaults", **conditions
    )
    # the load of other programs only: this one has not begun
    if conditions["num_threads"] > 1 and (conditions["load_average"] or 0.0) > conditions["num_cores"] / 2:
        yield "the machine is busy: threads that wait for each other say little, try --threads 1"
    yield ""
    yield f"{'model':<21}{'batch':>8} {'with':<5}{'eager ms':>21}{'simulated ms':>21}{'ratio':>19}{'CPU':>6}"


def _row(result: Result) -> str:
    case, bounds = result.case, result.ratio
    return (
        f"{case.name:<21}{_batch(case):>8} {case.optimizer:<5}"
        f"{_milliseconds(result.eager.wall):>21}{_milliseconds(result.simulated.wall):>21}"
        f"{f'{bounds.median:.2f} ({bounds.low:.2f}-{bounds.high:.2f})':>19}{result.cpu_ratio:>6.2f}"
    )


def _batch(case: Case) -> str:
    size, parts = case.input_shape[0], case.micro_batches
    return str(size) if parts == 1 else f"{parts} x {size // parts}"


def _milliseconds(seconds: Interval) -> str:
    digits = 3 if seconds.median < 1e-3 else 1
    return f"{seconds.median * 1e3:.{digits}f} ({seconds.low * 1e3:.{digits}f}-{seconds.high * 1e3:.{digits}f})"


if __name__ == "__main__":
    poptorch.setLogLevel("ERR")  # warnings of narrowed types would stand between the rows of the table
    raise SystemExit(main())
