"""These are the repository's own workloads: ordinary models with the speed-ups that they must reach, and instruments.

The instruments measure the simulator's overhead, start-up, memory by computation order, and growth.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any, Callable, Mapping, Optional

import torch
from torch import nn

from porting.bench.choices import apply_choices
from porting.bench.public import DEMANDED_MEAN, PUBLIC
from porting.bench.workloads import MakeOptimizer, Parts, SuiteEntry, Workload
from porting.diagnostics import ExecutableError
from porting.models import cnn, gpt, mlp, recurrent, resnet, uresnet2d
from porting.models.family import configure
from porting.options import PortOptions

__all__ = ["DEMANDED_MEANS", "GROUPS", "GROWTH", "ORDERS", "OVERHEAD", "START_UP", "SUITE", "WORKLOADS", "load"]


def load(name: str, choices: Mapping[str, Any], cache_dir: Optional[str] = None) -> Workload:
    """Make a workload by its name, with what a case chose (see `Choices`).

    Raises KeyError for a name that there is not, and ExecutableError E022 for a number of layers that it cannot have.
    """
    entry = WORKLOADS[name]
    layers = choices.get("layers")
    if layers is not None and not entry.has_layers:
        message, known = f"the layers of `{name}` are always the same", [key for key in GROWTH if "layers" in key]
        raise ExecutableError.of("E022", message=message, help=f"name one of which there can be more: {known[0]}")
    options = apply_choices(entry.options or PortOptions(), choices, cache_dir=cache_dir)
    rows = (choices.get("batch") or entry.batch) * options.micro_batches_per_call
    model, loss, batch, optimizer = entry.make(rows) if layers is None else entry.make(rows, layers=layers)
    if not entry.trains:
        batch, _labels = batch
    return Workload(model, loss, batch, optimizer, options, name, trains=entry.trains)


# -- the workloads -----------------------------------------------------------------------------------------------------


def _make_sgd(learning_rate: float, momentum: float = 0.0) -> MakeOptimizer:
    return lambda parameters: torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)


def _make_adam(learning_rate: float) -> MakeOptimizer:
    return lambda parameters: torch.optim.Adam(parameters, lr=learning_rate)


def _make_of(
    family: ModuleType, optimizer: MakeOptimizer, variant: Optional[str] = None, **changes: object
) -> Callable[[int], Parts]:
    """Make a model of a family, with its loss, and a batch of as many rows as are asked for."""
    variant = variant or family.DEFAULT
    config = configure(family.VARIANTS, variant, changes)
    return lambda rows: (
        family.build(variant, **changes),
        family.loss,
        family.example_batch(config, batch_size=rows),
        optimizer,
    )


# Two programs for large convolutional networks take two compilers minutes on a busy machine.
_PATIENT = PortOptions(tuning_seconds=600.0)
_SGD, _ADAM = _make_sgd(0.01), _make_adam(1e-3)
_SIZES: Mapping[str, Any] = dict(
    filters=8, depth=4, blocks_per_level=1, blocks_deepest=2, blocks_final=1, bottleneck=64
)
_UNET = _make_of(uresnet2d, _make_adam(3e-4), spatial_size=(160, 256), **_SIZES)
_MNIST, _SMALL, _TINY = (_make_of(mlp, _SGD, sizes=sizes) for sizes in ((784, 1000, 1000, 10), (64, 128, 10), (4, 10)))
_MNIST_ADAM = _make_of(mlp, _ADAM)
_CNN, _CNN_MOMENTUM = _make_of(cnn, _SGD), _make_of(cnn, _make_sgd(0.01, 0.9))
_RESNET18 = _make_of(resnet, _make_sgd(1e-3, 0.9), image_size=64)
_LSTM, _UNROLLED = (_make_of(recurrent, _ADAM, variant) for variant in ("lstm", "lstm_unrolled"))
_GPT = _make_of(gpt, lambda parameters: torch.optim.AdamW(parameters, lr=3e-4))

SUITE: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        "mushrooms": SuiteEntry(
            "MLP 22-44-44-1, SGD, 100 device iterations a call",
            100,
            _make_of(mlp, _SGD, "mushrooms"),
            {"float32": 5.0},
            PortOptions(device_iterations=100),
        ),
        "mnist_mlp": SuiteEntry("MLP 784-1000-1000-10, Adam", 64, _MNIST_ADAM, {"float32": 1.2, "bfloat16": 1.5}),
        "cnn": SuiteEntry(
            "CNN 28x28 with BatchNorm, SGD with momentum", 64, _CNN_MOMENTUM, {"float32": 1.5, "bfloat16": 2.5}
        ),
        "resnet18": SuiteEntry(
            "ResNet-18 at 64x64, SGD with momentum", 16, _RESNET18, {"float32": 1.05, "bfloat16": 1.4}, _PATIENT
        ),
        "uresnet2d": SuiteEntry(
            "UResNet2D, small, 3 planes of 160x256, Adam", 1, _UNET, {"float32": 1.1, "bfloat16": 1.4}, _PATIENT
        ),
        "gpt": SuiteEntry(
            "GPT of 4 layers, width 256, length 128, AdamW", 16, _GPT, {"float32": 1.12, "bfloat16": 1.8}
        ),
        "lstm_unrolled": SuiteEntry("LSTM cell unrolled by hand, length 32, Adam", 32, _UNROLLED, {"float32": 1.6}),
        "lstm": SuiteEntry("nn.LSTM, length 32, Adam", 32, _LSTM, {"float32": 1.2}),
    }
)
"""The suite by name, in the order in which it runs."""


# -- what a call costs by itself ---------------------------------------------------------------------------------------


_BAR = {"float32": 0.91}

_TRAINED = {
    "mlp_sgd": SuiteEntry("MLP 784-1000-1000-10, SGD", 64, _MNIST, _BAR),
    "mlp_adam": SuiteEntry("MLP 784-1000-1000-10, Adam", 64, _MNIST_ADAM, _BAR),
    "cnn_sgd": SuiteEntry("CNN 28x28 with BatchNorm, SGD", 32, _CNN, _BAR),
    "cnn_adam": SuiteEntry("CNN 28x28 with BatchNorm, Adam", 32, _make_of(cnn, _ADAM), _BAR),
    "micro_batches": SuiteEntry(
        "MLP 64-128-10, 16 micro-batches accumulated", 4, _SMALL, {}, PortOptions(accumulation=16)
    ),
    "tiny": SuiteEntry("one 4-10 layer", 4, _TINY, {}),
}
_INFERRED = {
    f"{name}_inference": replace(entry, title=f"inference of {entry.title}", trains=False)
    for name, entry in {
        "mlp": SuiteEntry("MLP 784-1000-1000-10", 64, _MNIST, _BAR),
        "cnn": SuiteEntry("CNN 28x28 with BatchNorm", 32, _CNN, _BAR),
        "micro_batches": SuiteEntry(
            "MLP 64-128-10, 16 micro-batches", 4, _SMALL, {}, PortOptions(device_iterations=16)
        ),
        "cnn_micro_batches": SuiteEntry(
            "CNN 28x28 with BatchNorm, 32 samples", 1, _CNN, {}, PortOptions(device_iterations=32)
        ),
        "tiny": SuiteEntry("one 4-10 layer", 4, _TINY, {}),
    }.items()
}
_REPLAYED = {"engine": ["replay"]}
_LEFT_OUT = dict.fromkeys(("memory", "data", "limits", "layouts"), False)
_OVERHEAD_SETTINGS = {"rounds": 25, "turn_seconds": 0.1, "eager_optimizer": "default", **_LEFT_OUT}

OVERHEAD: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        f"overhead_{name}": replace(entry, matrix=_REPLAYED, settings=_OVERHEAD_SETTINGS)
        for name, entry in {**_TRAINED, **_INFERRED}.items()
    }
)
"""What the simulator costs by itself, without compiled engines, against torch's default optimizers.

A large MLP and a CNN may take a tenth longer than eager; the tiny models show what a call costs by itself.
"""

START_UP: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        f"start_up_{name}": replace(
            SUITE[name],
            demanded={},
            matrix={"engine": ["ready"]},
            settings={"rounds": 2, "start_up_runs": 5, "cold_starts": 1, **_LEFT_OUT},
        )
        for name in ("mnist_mlp", "cnn", "resnet18", "gpt")
    }
)
"""What it costs to get to the first step, with an executable on disk and without."""


def _make_linear24(rows: int) -> Parts:
    """Make layers that are all alike, with blocks of 1 KiB a row: only when memory is let go tells orders apart."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(24)))
    return model, nn.MSELoss(), tuple(torch.randn(rows, 256) for _ in range(2)), _make_sgd(0.01)


_ONE_OF_EACH = ("rounds", "calls_per_turn", "parity_steps", "threads")

ORDERS: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        f"orders_{name}": replace(
            entry,
            demanded={},
            matrix={**_REPLAYED, "order": ["none", "chen", "gttime", "gtmem", "dummy2"]},
            # threads have heaps of their own, and how many there are is another question
            settings={**_LEFT_OUT, **dict.fromkeys(_ONE_OF_EACH, 1), "device": "sim", "memory": True},
        )
        for name, entry in {
            "linear24": SuiteEntry("24 linear layers of 256", 12_288, _make_linear24, {}),
            "gpt": SUITE["gpt"],
            "uresnet2d": SUITE["uresnet2d"],
        }.items()
    }
)
"""Peak memory of whole processes by computation order: what fits into a machine is decided by that."""


def _make_stack(rows: int, layers: int = 4) -> Parts:
    """Make linear layers of 64 with ReLU between them, whose operators are small: what is around them shows."""
    stacked = [layer for _number in range(layers) for layer in (nn.Linear(64, 64), nn.ReLU())]
    batch = torch.randn(rows, 64), torch.randint(64, (rows,))
    return nn.Sequential(*stacked), nn.CrossEntropyLoss(), batch, _make_sgd(0.01)


_GROWTH_SETTINGS = {"rounds": 5, "turn_seconds": 0.05, "parity_steps": 1, "growth": True, **_LEFT_OUT}

GROWTH: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        f"growth_{grown}": SuiteEntry(
            f"{title} of 64, by {grown.replace('_', ' ')}",
            16,
            _make_stack,
            {},
            matrix={**_REPLAYED, grown: [factor * smallest for factor in (1, 2, 4, 8)]},
            settings=_GROWTH_SETTINGS,
            has_layers=True,
        )
        for grown, title, smallest in (
            ("layers", "linear layers", 8),
            ("batch", "4 linear layers", 64),
            ("accumulation", "4 linear layers", 4),
            ("replicas", "4 linear layers", 2),
        )
    }
)
"""How capture, the first call, and what a call takes beyond its operators grow with the step."""

GROUPS: Mapping[str, Mapping[str, SuiteEntry]] = MappingProxyType(
    {"suite": SUITE, "public": PUBLIC, "overhead": OVERHEAD, "start_up": START_UP, "orders": ORDERS, "growth": GROWTH}
)
"""Workloads that are measured together."""

DEMANDED_MEANS: Mapping[str, float] = MappingProxyType({"public": DEMANDED_MEAN})
"""The geometric mean of the speed-ups that is asked of a whole group, by its name."""

WORKLOADS: Mapping[str, SuiteEntry] = MappingProxyType(
    {name: entry for group in GROUPS.values() for name, entry in group.items()}
)
"""All of them by name."""
