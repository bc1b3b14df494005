"""Every step has the losses of the one before, save for batch size 1 and half precision, and what it adds is there."""

from __future__ import annotations

import copy
import inspect
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from porting.models import uresnet2d
from porting.recipe_chain import chain_of_equal_losses, close_losses, demand, holds, reaches, run_program
from porting.recipes.cosmictagger import workload

NUM_STEPS = 3

MAX_CHANGED_LINES = {
    2: 13,  # the model's call, its options and the import of the package come in one step
    11: 20,  # what every instance does for itself, what only one does, and a setting
}


def neutrino_iou(step: ModuleType) -> float:
    """Train for three fifths of the program's own steps, and test with other events."""
    scores = step.validate(step.train(96).measured.model, workload.load_events(workload.Settings())[1])
    return float(scores["Average/Neutrino_IoU"])


def device_rates(step: ModuleType) -> str:
    """Compare the device's learning rate with the schedule's in each step, for both optimizers."""
    for optimizer in ("adam", "rmsprop"):
        rates = step.train(3, workload.Settings(optimizer=optimizer)).measured.rates
        schedule = uresnet2d.Schedule(steps_per_epoch=8, peak_rate=0.01)
        demand(rates == [schedule(number) for number in range(3)], f"{optimizer}: {rates}")
    return "1e-05, 0.001259, 0.002507 of Adam and RMSprop"


def validation_changes_nothing(step: ModuleType) -> str:
    """Validate in the midst of training and compare everything that a step could change."""
    ported = step.train(2).measured.model
    before = copy.deepcopy((ported.state_dict(), ported.optimizer_state_dict()["state"]))
    scores = step.validate(ported, workload.load_events(workload.Settings())[1])
    after = ported.state_dict(), ported.optimizer_state_dict()["state"]
    demand(all(torch.equal(before[0][name], value) for name, value in after[0].items()), "a weight has changed")
    for number, state in after[1].items():
        same = [torch.equal(torch.as_tensor(before[1][number][name]), torch.as_tensor(state[name])) for name in state]
        demand(all(same), "the optimizer's state has changed")
    return f"{len(after[0])} weights and buffers as before; mean IoU {scores['Average/mIoU']:.3f}"


def memory(step: ModuleType) -> str:
    """Look at the memory of the small network, and at that of a large one."""
    small, large = (workload.look_at_memory(parts) for parts in (step.small(), _large(step)))
    demand(small.fits and not large.fits, f"{small.verdict}, {large.verdict}")
    needed = [f"{report.bytes_per_ipu / 1e6:.0f} MB" for report in (small, large)]
    return f"{needed[0]}, which fits; 4 levels at 640 x 1024: {needed[1]}"


def compiling_changes_nothing(step: ModuleType) -> str:
    """Compare the weights before and after the warm-up; the first step compiles nothing any more."""
    torch.manual_seed(0)
    fresh = workload.make_model(workload.Settings(), spatial_size=(64, 96)).state_dict()
    ported = step.train(0).measured.model
    changed = [name for name, value in ported.state_dict().items() if not torch.equal(value, fresh[name])]
    demand(not changed, f"{len(changed)} weights have changed")
    demand(ported.report().num_training_calls == 0, "the warm-up was a call")
    return f"{len(fresh)} weights and buffers as before, no call made"


def half_activations(step: ModuleType) -> str:
    """Check the types of a call's results."""
    ported = step.train(1).measured.model
    logits, loss, _metrics = ported(*next(iter(ported.dataloader(workload.load_events(workload.Settings())[0]))))
    demand((logits.dtype, loss.dtype) == (torch.float16, torch.float32), f"{logits.dtype}, {loss.dtype}")
    weights = {value.dtype for value in ported.state_dict().values() if value.is_floating_point()}
    demand(weights == {torch.float32}, f"weights of {weights}")
    return "logits float16, loss float32, weights float32"


def two_stages(step: ModuleType) -> str:
    """Compare the memory of the fullest IPU with what one IPU would need."""
    model, loss, batch, optimizer, options = _large(step)
    together = workload.look_at_memory((model, loss, batch, optimizer, options.replace(stages=None)))
    piped = workload.look_at_memory((model, loss, batch, optimizer, options))
    demand(len(piped.ipus) == 2 and piped.bytes_per_ipu < 0.75 * together.bytes_per_ipu, str(piped))
    each = " and ".join(f"{ipu.total_bytes / 1e6:.0f}" for ipu in piped.ipus)
    return f"4 levels at 640 x 1024: {each} MB, {together.bytes_per_ipu / 1e6:.0f} MB on one IPU"


def bench_compares(step: ModuleType) -> str:
    """Let `porting bench` compare the step with plain PyTorch."""
    target = f"{inspect.getfile(step)}:small"
    once = ["--rounds", "1", "--steps", "1"]
    said = run_program("-m", "porting", "bench", target, "--engine", "replay", "--quick", *once)
    return next(" ".join(line.split()) for line in said.splitlines() if "same losses" in line)


def instances_train_as_one(step: ModuleType) -> str:
    """Train in two processes, and in one with two replicas; compare the weights that both save."""
    with tempfile.TemporaryDirectory() as folder:
        program = [inspect.getfile(step), "--steps", "3", "--checkpoint"]
        said = run_program("-m", "porting", "run", "--num-instances", "2", *program, f"{folder}/two")
        run_program(*program, f"{folder}/one", "--replicas", "2")
        first, second, alone = (torch.load(f"{folder}/{name}") for name in ("two-0", "two-1", "one-0"))
        demand(sorted(path.name for path in Path(folder).iterdir()) == ["one-0", "two-0", "two-1"], "other files")
    demand(said.count("loss ") == 1, said)
    # statistics of BatchNorm are each instance's own, and a bias before it has a gradient of rounding noise
    names = [name for name in first if name.endswith(("weight", "norm.bias"))]
    demand(all(torch.equal(first[name], second[name]) for name in names), "the instances have different weights")
    worst = max(float((first[name] - alone[name]).norm() / alone[name].norm().clamp_min(1e-6)) for name in names)
    demand(worst < 1e-3, f"one process has other weights: {worst:.1e}")
    return f"2 instances have equal weights, {worst:.0e} from those of 2 replicas; one of them tells"


def _large(step: ModuleType) -> Any:
    config = uresnet2d.UResNet2DConfig(filters=8, residual=False, depth=4)
    model = uresnet2d.UResNet2D(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    return model, uresnet2d.loss, uresnet2d.example_batch(config, batch_size=1), optimizer, step.OPTIONS


CHECKS = (
    # 4.98 when it was written, from 5.80 in the first step
    reaches(0, "loss of the 5th step", at_most=5.3, measure=lambda step: step.train(5)[-1]),
    # 0.55 after 96 steps, 0.03 after 64 and 0.78 in the end
    reaches(0, "neutrino IoU", at_least=0.4, measure=neutrino_iou, slow=True),
    # 0.017 when it was written
    close_losses(1, like=0, relative=0.03, because="BatchNorm and the loss average over single events"),
    *chain_of_equal_losses(2, 7),
    holds(3, "the device's learning rate is the schedule's", device_rates),
    holds(5, "validation changes no weight", validation_changes_nothing),
    holds(6, "what an IPU has to hold is known before compiling", memory),
    holds(7, "compiling changes no weight", compiling_changes_nothing),
    # 0.001 when it was written
    close_losses(8, like=7, relative=0.01, because="activations have 11 bits"),
    holds(8, "activations are half, the loss is not", half_activations),
    *chain_of_equal_losses(9, 11),
    holds(9, "two IPUs hold less each", two_stages),
    holds(10, "`porting bench` measures the step", bench_compares, slow=True),
    holds(11, "instances train as replicas do", instances_train_as_one, slow=True),
)
