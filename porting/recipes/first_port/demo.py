"""Show the port next to plain PyTorch on one screen: the change of code, the losses, what ran where, and the speed.

Run as `make demo` or `python -m porting.recipes.first_port.demo`. The exit code is 1 when the two disagree.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

import porting
from porting import bench
from porting.recipe_chain import measure_accuracy

NUM_EPOCHS = 10
BATCH_SIZE = 32
NUM_COMPARED_STEPS = 20
MAX_DIFFERENCE = 1e-5
MIN_ACCURACY = 0.95
NUM_ROUNDS = 15
ENGINE = "auto"

Batch = Sequence[torch.Tensor]

_LABELS = {True: "ok    ", False: "FAILED"}

# at once, so that lines and progress bars keep their order wherever the output goes
say = partial(print, flush=True)


@dataclass
class History:
    """The history of a training: the loss of each step, and after each epoch the share of test images recognised."""

    losses: List[float] = field(default_factory=list)
    accuracies: List[float] = field(default_factory=list)

    def mean_loss(self, epoch: int) -> float:
        """Return the mean loss of the steps of an epoch, counted from 0."""
        num_steps = len(self.losses) // len(self.accuracies)
        return sum(self.losses[epoch * num_steps : (epoch + 1) * num_steps]) / num_steps


def main() -> int:
    """Train both, compare them, and return 0 when they agree and have learnt."""
    # threads that wait for each other cost more than they bring to so small a model
    torch.set_num_threads(1)
    try:
        workload = importlib.import_module("porting.recipes.first_port.workload")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        print(porting.render(porting.Finding("X001", help='pip install "ipu-porting[recipes]"')), file=sys.stderr)
        return 1
    train_set, test_set, _loader_of_steps = workload.load_images()
    _say_what_is_done(workload.make_model())

    plain, plain_step = train_plain(workload.make_model, train_set, test_set)
    ported, history = train_ported(workload.make_model, train_set, test_set)
    _print_table(plain, history)
    verdicts = list(_verdicts(plain, history, is_simulator=ported.report().is_simulator))
    say("\n".join(text for _is_met, text in verdicts))

    _headline("what ran where")
    say(str(ported.report()).partition("\nnote")[0])

    _headline("compiled training against eager")
    _compare_speed(plain_step, port(workload.make_model(), engine=ENGINE), list(_make_loader(train_set)))
    # the command as it can be typed here
    command, folder = Path(sys.executable).with_name("porting"), Path.cwd()
    typed = command.relative_to(folder) if folder in command.parents else "porting"
    say(f"\nnext, see what a port changes: {typed} recipe show first_port --diff")
    return 0 if all(is_met for is_met, _text in verdicts) else 1


def _make_loader(dataset: torch.utils.data.Dataset) -> Any:
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, generator=torch.Generator().manual_seed(0))


# -- training --------------------------------------------------------------------------------------------------------


def train_plain(
    make_model: Callable[[], nn.Module],
    train_set: torch.utils.data.TensorDataset,
    test_set: torch.utils.data.TensorDataset,
) -> Tuple[History, Callable[[Batch], Any]]:
    """Train in eager PyTorch; return the history and the function that trains on one batch."""
    torch.manual_seed(0)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    loader, history = _make_loader(train_set), History()

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    for _epoch in _epochs("plain PyTorch"):
        history.losses += [step(batch).item() for batch in loader]
        history.accuracies.append(measure_accuracy(model, test_set))
    return history, step


def train_ported(
    make_model: Callable[[], nn.Module],
    train_set: torch.utils.data.TensorDataset,
    test_set: torch.utils.data.TensorDataset,
) -> Tuple[porting.PortedModel, History]:
    """Train the same model from the same seed on its device; return the ported model and the history."""
    torch.manual_seed(0)
    ported = port(make_model())
    loader, history = ported.dataloader(_make_loader(train_set)), History()
    infer = ported.inference()
    for _epoch in _epochs("ported"):
        history.losses += [ported(*batch)[1].item() for batch in loader]
        history.accuracies.append(measure_accuracy(infer, test_set))
    return ported, history


def port(model: nn.Module, **options: Any) -> porting.PortedModel:
    """Port `model` with the loss and the optimizer of the demo."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    return porting.to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=porting.PortOptions(**options))


def _epochs(text: str) -> Any:
    """Count epochs with a progress bar, which only terminals get."""
    return tqdm(range(NUM_EPOCHS), desc=f"{text:<13}", unit="epoch", disable=None, ncols=79)


# -- telling ---------------------------------------------------------------------------------------------------------


def _say_what_is_done(model: nn.Module) -> None:
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"""\
A network of {num_parameters:,} parameters, with BatchNorm, learns 1440
handwritten digits (scikit-learn) in plain PyTorch, and ported. The change:

-     optimizer.zero_grad()
-     loss = criterion(model(images), labels)
-     loss.backward()
-     optimizer.step()
+ ported = porting.to_ipu(model, criterion, optimizer=optimizer)
+     output, loss = ported(images, labels)""")


def _headline(text: str) -> None:
    say(f"\n-- {text} {'-' * (76 - len(text))}")


def _print_table(plain: History, ported: History) -> None:
    _headline("side by side")
    say("           mean loss               test accuracy")
    say("epoch      plain     ported        plain     ported")
    for epoch in (0, NUM_EPOCHS - 1):
        say(
            f"{epoch + 1:>5}{plain.mean_loss(epoch):>11.4f}{ported.mean_loss(epoch):>11.4f}"
            f"{plain.accuracies[epoch]:>13.3f}{ported.accuracies[epoch]:>11.3f}"
        )


def _verdicts(plain: History, ported: History, *, is_simulator: bool) -> Iterator[Tuple[bool, str]]:
    """Yield whether each demand is met, and a line that says so."""
    pairs = list(zip(plain.losses, ported.losses))[:NUM_COMPARED_STEPS]
    difference = max(abs(one - other) / abs(one) for one, other in pairs)
    # an IPU adds in another order than a CPU, and how far that leads the losses apart was never measured
    is_met = difference <= MAX_DIFFERENCE or not is_simulator
    demand = f"at most {MAX_DIFFERENCE:.0e}" if is_simulator else "not demanded of hardware"
    what = f"first {len(pairs)} losses, largest relative difference: {difference:.1e}"
    yield is_met, f"{_LABELS[is_met]} {what} ({demand})"
    accuracy = ported.accuracies[-1]
    is_met = accuracy >= MIN_ACCURACY
    yield is_met, f"{_LABELS[is_met]} test accuracy of the port: {accuracy:.3f} (at least {MIN_ACCURACY})"


def _compare_speed(plain_step: Callable[[Batch], Any], ported: porting.PortedModel, batches: Sequence[Batch]) -> None:
    """Compile the step, and time epochs of both in turns, on batches that are loaded already."""
    compile_seconds = ported.compile(*batches[0])

    def train_epoch(step: Callable[[Batch], Any]) -> None:
        for batch in batches:
            step(batch)

    steps = {"eager": plain_step, "ported": lambda batch: ported(*batch)}
    sides = {name: partial(train_epoch, step) for name, step in steps.items()}
    bench.time_interleaved(sides, rounds=1)
    timings = bench.time_interleaved(sides, rounds=NUM_ROUNDS, progress="steady state")
    num_samples = sum(len(labels) for _images, labels in batches)
    for name, timing in timings.items():
        rates = [num_samples / seconds for seconds in (timing.wall.median, timing.wall.high, timing.wall.low)]
        say("{:<7}{:>9,.0f} samples/s   quartiles {:,.0f} to {:,.0f}".format(name, *rates))
    speed = bench.ratio(timings["eager"], timings["ported"])
    (record,) = ported.report().executors
    found = "found on disk in" if record.cache == "hit" else "measured and compiled in"
    say(f"eager time / ported time: {speed.median:.2f} (95 %: {speed.low:.2f} to {speed.high:.2f}), one thread")
    say(f"engine {record.engine}: {found} {compile_seconds:.1f} s")
    saved = (timings["eager"].wall.median - timings["ported"].wall.median) / len(batches)
    say(f"break-even after {compile_seconds / saved:,.0f} steps" if saved > 0 else "break-even never: no time is saved")


if __name__ == "__main__":
    raise SystemExit(main())
