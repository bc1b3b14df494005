"""The repository's own suite: ordinary models, and how much faster than eager each is to train."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional, Tuple

import torch
from torch import nn

from porting.models import cnn, gpt, mlp, recurrent, resnet, uresnet2d
from porting.options import PortOptions

from .choices import with_choices
from .workloads import Workload

__all__ = ["SUITE", "SuiteEntry", "load"]

Parts = Tuple[nn.Module, Any, Any, Callable[[Any], torch.optim.Optimizer]]
"""Model, loss, batch, and the function of parameters that makes the optimizer."""


@dataclass(frozen=True)
class SuiteEntry:
    """A workload of the suite.

    `make` gets the rows of a call and returns the parts. `demanded` has the speed-up over float32 eager that is asked
    of each precision; precisions that are not in it are not part of the suite.
    """

    title: str
    batch: int
    make: Callable[[int], Parts]
    demanded: Mapping[str, float]
    options: PortOptions = field(default_factory=PortOptions)


def load(name: str, choices: Mapping[str, Any], cache_dir: Optional[str] = None) -> Workload:
    """Make a workload of the suite, with what a cell chose (see `Choices`); KeyError for a name it does not have."""
    entry = SUITE[name]
    options = with_choices(entry.options, choices, cache_dir=cache_dir)
    rows = (choices.get("batch") or entry.batch) * options.micro_batches_per_call
    model, loss, batch, optimizer = entry.make(rows)
    return Workload(model, loss, batch, optimizer, options, name)


# -- the workloads -----------------------------------------------------------------------------------------------------


def _sgd(learning_rate: float, momentum: float = 0.0) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)


def _adam(learning_rate: float) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.Adam(parameters, lr=learning_rate)


def _mushrooms(rows: int) -> Parts:
    batch = mlp.example_batch(mlp.VARIANTS["mushrooms"], batch_size=rows)
    return mlp.build("mushrooms"), mlp.loss, batch, _sgd(0.01)


def _mnist_mlp(rows: int) -> Parts:
    batch = mlp.example_batch(mlp.VARIANTS["mnist"], batch_size=rows)
    return mlp.build("mnist"), mlp.loss, batch, _adam(1e-3)


def _cnn(rows: int) -> Parts:
    return cnn.build(), cnn.loss, cnn.example_batch(cnn.CNNConfig(), batch_size=rows), _sgd(0.01, 0.9)


def _resnet18(rows: int) -> Parts:
    config = resnet.ResNetConfig(image_size=64)
    return resnet.ResNet(config), resnet.loss, resnet.example_batch(config, batch_size=rows), _sgd(1e-3, 0.9)


def _uresnet2d(rows: int) -> Parts:
    config = uresnet2d.UResNet2DConfig(
        filters=8,
        depth=4,
        blocks_per_level=1,
        blocks_deepest=2,
        blocks_final=1,
        bottleneck=64,
        spatial_size=(160, 256),
    )
    return uresnet2d.UResNet2D(config), uresnet2d.loss, uresnet2d.example_batch(config, batch_size=rows), _adam(3e-4)


def _gpt(rows: int) -> Parts:
    config = gpt.GPTConfig(num_layers=4, width=256, length=128)

    def adamw(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=3e-4)

    return gpt.GPT(config), gpt.loss, gpt.example_batch(config, batch_size=rows), adamw


def _lstm_unrolled(rows: int) -> Parts:
    config = recurrent.RecurrentConfig(length=32)
    model = recurrent.UnrolledLSTMClassifier(config)
    return model, recurrent.loss, recurrent.example_batch(config, batch_size=rows), _adam(1e-3)


def _lstm(rows: int) -> Parts:
    config = recurrent.RecurrentConfig(length=32)
    model = recurrent.LSTMClassifier(config)
    return model, recurrent.loss, recurrent.example_batch(config, batch_size=rows), _adam(1e-3)


SUITE: Mapping[str, SuiteEntry] = MappingProxyType(
    {
        "mushrooms": SuiteEntry(
            "MLP 22-44-44-1, SGD, 100 device iterations a call",
            batch=100,
            make=_mushrooms,
            demanded={"float32": 5.0},
            options=PortOptions(device_iterations=100),
        ),
        "mnist_mlp": SuiteEntry(
            "MLP 784-1000-1000-10, Adam", batch=64, make=_mnist_mlp, demanded={"float32": 1.2, "bfloat16": 1.5}
        ),
        "cnn": SuiteEntry(
            "CNN 28x28 with BatchNorm, SGD with momentum",
            batch=64,
            make=_cnn,
            demanded={"float32": 1.5, "bfloat16": 2.5},
        ),
        "resnet18": SuiteEntry(
            "ResNet-18 at 64x64, SGD with momentum",
            batch=16,
            make=_resnet18,
            demanded={"float32": 1.05, "bfloat16": 1.4},
        ),
        "uresnet2d": SuiteEntry(
            "UResNet2D, small, 3 planes of 160x256, Adam",
            batch=1,
            make=_uresnet2d,
            demanded={"float32": 1.1, "bfloat16": 1.4},
        ),
        "gpt": SuiteEntry(
            "GPT of 4 layers, width 256, length 128, AdamW",
            batch=16,
            make=_gpt,
            demanded={"float32": 1.12, "bfloat16": 1.8},
        ),
        "lstm_unrolled": SuiteEntry(
            "LSTM cell unrolled by hand, length 32, Adam", batch=32, make=_lstm_unrolled, demanded={"float32": 1.6}
        ),
        "lstm": SuiteEntry("nn.LSTM, length 32, Adam", batch=32, make=_lstm, demanded={"float32": 1.0}),
    }
)
"""The suite by name, in the order in which it runs."""
