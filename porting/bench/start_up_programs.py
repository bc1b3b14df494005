"""The programs whose start is measured: one trained step, eager or ported, of small ordinary models.

What is loaded here is what an eager program loads: torch, and the model's own module.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple, Tuple, Type

import torch
from torch import nn

from porting.models import cnn, gpt, mlp, resnet

from .workloads import load_by_name

__all__ = ["MODELS", "Program", "run"]


class Program(NamedTuple):
    """What a program trains: `optimizer` is a class of torch with the arguments that it gets besides parameters."""

    model: nn.Module
    loss: Callable[[Any, Any], torch.Tensor]
    batch: Tuple[torch.Tensor, torch.Tensor]
    optimizer: Tuple[Type[torch.optim.Optimizer], Mapping[str, Any]]


def run(side: str, model: str, engine: str = "", cache_dir: str = "") -> None:
    """Train one step of `model` (`module:function`), and print what its parts cost and what was loaded, as JSON.

    `side` is "eager", with a fused optimizer, or "ported". The first step counts from the moment at which model, batch
    and optimizer are there.
    """
    # a program imports what it uses before it makes anything
    to_ipu, options = load_by_name("porting:to_ipu" if side == "ported" else "builtins:id"), None
    if side == "ported":
        options = load_by_name("porting:PortOptions")(engine=engine, cache_dir=cache_dir or None)
    torch.manual_seed(0)
    program: Program = load_by_name(model)()
    kind, settings = program.optimizer
    fused = {} if side == "ported" else {"fused": True}
    optimizer = kind(program.model.parameters(), **{**settings, **fused})
    cpu, wall = time.process_time(), time.perf_counter()
    if side == "ported":
        ported = to_ipu(program.model, program.loss, optimizer=optimizer, options=options, device="sim")
        _output, loss = ported(*program.batch)
    else:
        optimizer.zero_grad(set_to_none=True)
        loss = program.loss(program.model(program.batch[0]), program.batch[1])
        loss.backward()
        optimizer.step()
    measured = {
        "loss": float(loss.detach()),
        "first_step_cpu_seconds": time.process_time() - cpu,
        "first_step_seconds": time.perf_counter() - wall,
        "loads_compiler": "torch._dynamo" in sys.modules,
    }
    sys.stdout.write(json.dumps(measured) + "\n")


def _mlp() -> Program:
    """Make a perceptron 784-1000-1000-10 with SGD, batch 64."""
    batch = mlp.example_batch(mlp.MLPConfig(), batch_size=64)
    return Program(mlp.build(), mlp.loss, batch, (torch.optim.SGD, {"lr": 0.01}))


def _cnn() -> Program:
    """Make a convolutional network with BatchNorm for 28 x 28 pixels with SGD and momentum, batch 64."""
    batch = cnn.example_batch(cnn.CNNConfig(), batch_size=64)
    return Program(cnn.build(), cnn.loss, batch, (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}))


def _resnet18() -> Program:
    """Make ResNet-18 for 64 x 64 pixels with SGD and momentum, batch 16."""
    config = resnet.ResNetConfig(image_size=64)
    batch = resnet.example_batch(config, batch_size=16)
    return Program(resnet.ResNet(config), resnet.loss, batch, (torch.optim.SGD, {"lr": 0.001, "momentum": 0.9}))


def _gpt() -> Program:
    """Make a transformer of 4 layers, width 256 and length 128 with AdamW, batch 16."""
    config = gpt.GPTConfig()
    batch = gpt.example_batch(config, batch_size=16)
    return Program(gpt.GPT(config), gpt.loss, batch, (torch.optim.AdamW, {"lr": 0.0003}))


MODELS: Mapping[str, str] = {name: f"{__name__}:_{name}" for name in ("mlp", "cnn", "resnet18", "gpt")}
"""Where the models are made that are measured if none is named."""
