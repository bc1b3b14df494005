"""Silent errors of trainings as pairs of programs: a sound one, what is other in the faulty one, and where it begins.

They are of the kinds that reports and studies of training bugs list: nothing is raised, and the loss still falls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict

__all__ = ["ERRORS", "SilentError", "make_program"]

_PROGRAM = """\
import copy

import torch
from torch import nn

{seed}
inputs, labels = torch.randn(40, 6), torch.randint(3, (40,))
{model}
run = {run}
optimizer = {optimizer}
{schedule}
loader = {loader}

def compute_loss(x, y):
    {loss}

def train(num_epochs):
    for _epoch in range(num_epochs):
        for number, (x, y) in enumerate(loader):
            {step}
{afterwards}
"""

_SLOTS = {
    "seed": "torch.manual_seed(7)",
    "model": "model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))",
    "run": "model",
    "optimizer": "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "schedule": "",
    "loader": "torch.utils.data.DataLoader([*zip(inputs, labels)], batch_size=8, shuffle=True)",
    "loss": "return nn.functional.cross_entropy(run(x), y)",
    "step": "optimizer.zero_grad(); compute_loss(x, y).backward(); optimizer.step()",
    "afterwards": "train(2)",
}

_ACCUMULATED = """\
(compute_loss(x, y){divided}).backward()
            if number % 2: optimizer.step(); optimizer.zero_grad()"""
_CLIPPED = "optimizer.zero_grad(); compute_loss(x, y).backward(); "
_SCALED = "optimizer.zero_grad(); scaler.scale(compute_loss(x, y)).backward(); "
_CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
_TOKENS = """\
class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(12, 6), nn.Linear(6, 12, bias=False)
        {tied}
    def forward(self, x):
        return self.head(self.table(x))
inputs = labels = torch.randint(1, 12, (40, 5)); labels[:, 4] = 0
model = Tokens()"""
_NEXT = "return nn.functional.cross_entropy(run(x)[:, :{end}].flatten(0, 1), y[:, {begin}:].flatten(){more})"
_RESTART = """\
train(1)
kept = copy.deepcopy(optimizer.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
{loads}
train(1)"""
_AVERAGED = """\
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
train(1)
with torch.no_grad():
    {evaluated}(inputs)"""


@dataclass(frozen=True)
class SilentError:
    """A sound program's parts, those that are other in the faulty one, and the kind and step in which that begins."""

    faulty: Dict[str, str]
    kind: str
    step: int
    name: str = ""
    sound: Dict[str, str] = field(default_factory=dict)


def make_program(parts: Dict[str, str], *, is_ported: bool) -> str:
    """Write a program; a ported one runs its model on the device, in the loop that it has."""
    source = _PROGRAM.format(**{**_SLOTS, **parts})
    if not is_ported:
        return source
    ported = source.replace("\nrun = model", '\nrun = porting.to_ipu(model, loop="host", options=options)')
    return f"import porting\noptions = porting.PortOptions(max_executables=2)\n{ported}"


ERRORS = {
    "gradients are not zeroed": SilentError({"step": "compute_loss(x, y).backward(); optimizer.step()"}, "gradient", 2),
    "the schedule is stepped each epoch": SilentError(
        {"step": f"{_SLOTS['step']}; number == 4 and schedule.step()"},
        "learning rate",
        2,
        sound={
            "schedule": "schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)",
            "step": f"{_SLOTS['step']}; schedule.step()",
        },
    ),
    "the schedule is stepped before the optimizer": SilentError(
        {"step": _SLOTS["step"].replace("optimizer.step()", "schedule.step(); optimizer.step()")},
        "learning rate",
        1,
        sound={
            "schedule": "schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)",
            "step": f"{_SLOTS['step']}; schedule.step()",
        },
    ),
    "norms decay": SilentError(
        {"optimizer": "torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)"},
        "setting",
        1,
        "weight_decay of `1.weight`",
        sound={
            "optimizer": "torch.optim.AdamW([{'params': [*model[0].parameters(), *model[3].parameters()]}, "
            "{'params': model[1].parameters(), 'weight_decay': 0.0}], lr=0.01, weight_decay=0.1)",
        },
    ),
    "accumulated losses are not divided": SilentError(
        {"step": _ACCUMULATED.format(divided="")},
        "loss",
        1,
        sound={"step": _ACCUMULATED.format(divided=" / 2"), "loader": _SLOTS["loader"].replace("=8", "=5")},
    ),
    "gradients are clipped after the step": SilentError(
        {"step": f"{_CLIPPED}optimizer.step(); {_CLIP}"},
        "setting",
        1,
        "max_grad_norm",
        sound={"step": f"{_CLIPPED}{_CLIP}; optimizer.step()"},
    ),
    "gradients are clipped before they are unscaled": SilentError(
        {"step": f"{_SCALED}{_CLIP}; scaler.step(optimizer); scaler.update()"},
        "gradient",
        1,
        sound={
            "schedule": "scaler = torch.amp.GradScaler('cpu')",
            "step": f"{_SCALED}scaler.unscale_(optimizer); {_CLIP}; scaler.step(optimizer); scaler.update()",
        },
    ),
    "dropout is off in training": SilentError(
        {"schedule": "model.eval(); run.eval()"},
        "loss",
        1,
        sound={"model": "model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))"},
    ),
    "labels are shifted by one": SilentError(
        {"loss": _NEXT.format(end=5, begin=0, more="")},
        "loss",
        1,
        sound={"model": _TOKENS.format(tied=""), "loss": _NEXT.format(end=4, begin=1, more="")},
    ),
    "the mean is over padding too": SilentError(
        {"loss": _NEXT.format(end=4, begin=1, more="")},
        "loss",
        1,
        sound={"model": _TOKENS.format(tied=""), "loss": _NEXT.format(end=4, begin=1, more=", ignore_index=0")},
    ),
    "samples are not shuffled": SilentError(
        {"loader": _SLOTS["loader"].replace("shuffle=True", "shuffle=False")}, "samples", 1
    ),
    "samples are shuffled otherwise": SilentError(
        {"loader": _SLOTS["loader"].replace("True", "True, generator=torch.Generator().manual_seed(3)")}, "samples", 1
    ),
    "the last batch is dropped": SilentError(
        {"loader": _SLOTS["loader"].replace("=8", "=16, drop_last=True")},
        "samples",
        3,
        sound={"loader": _SLOTS["loader"].replace("=8", "=16")},
    ),
    "momentum is lost at a restart": SilentError(
        {"afterwards": _RESTART.format(loads="")},
        "update",
        3,
        sound={
            "afterwards": _RESTART.format(loads="optimizer.load_state_dict(kept)"),
            "loader": _SLOTS["loader"].replace("=8", "=20"),
        },
    ),
    "betas are others": SilentError(
        {"optimizer": "torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.99))"},
        "setting",
        1,
        "betas",
        sound={"optimizer": "torch.optim.Adam(model.parameters(), lr=0.01)"},
    ),
    "a frozen layer is trained": SilentError(
        {"optimizer": _SLOTS["optimizer"]},
        "setting",
        1,
        "parameter of `0.weight`",
        sound={"optimizer": "torch.optim.SGD(model[1:].parameters(), lr=0.1, momentum=0.9)"},
    ),
    "statistics move by 1 - momentum": SilentError(
        {"model": _SLOTS["model"].replace("LayerNorm(8)", "BatchNorm1d(8, momentum=0.9)")},
        "buffer",
        1,
        sound={"model": _SLOTS["model"].replace("LayerNorm(8)", "BatchNorm1d(8)")},
    ),
    "weights are in bfloat16": SilentError(
        {
            "model": f"{_SLOTS['model']}.bfloat16()",
            "loss": "return nn.functional.cross_entropy(run(x.bfloat16()).float(), y)",
        },
        "setting",
        1,
        "type",
    ),
    "the moving average is not used": SilentError(
        {"afterwards": _AVERAGED.format(evaluated="model")},
        "evaluation",
        5,
        sound={
            "afterwards": _AVERAGED.format(evaluated="average"),
            "step": f"{_SLOTS['step']}; average.update_parameters(model)",
        },
    ),
    "tied weights are two": SilentError(
        {"model": _TOKENS.format(tied="")},
        "parameter",
        0,
        "head.weight",
        sound={
            "model": _TOKENS.format(tied="self.head.weight = self.table.weight"),
            "loss": _NEXT.format(end=4, begin=1, more=""),
        },
    ),
    "the first weights are others": SilentError({"seed": "torch.manual_seed(8)"}, "parameter", 0),
}
"""The errors by what they are."""
