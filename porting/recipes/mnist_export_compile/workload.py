"""All steps share this: the flags of the original example, digits, the perceptron, and the files written in the end."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

import porting
from porting.data.idx import read_or_make_digits
from porting.data.images import fake_data
from porting.models import mlp
from porting.recipe_chain import Losses

SMALL = ("--unit", "100")
"""The command line of a smaller network."""

FLAGS: Mapping[str, Mapping[str, Any]] = {
    "no_use_fixed_batch_dataset": {"action": "store_true", "help": "drop the rest instead of padding"},
    "computation_order": {"default": "none", "help": "what is computed twice: chen, gttime, gtmem"},
    "export": {"metavar": "PATH", "help": "write the training step to a file, and end"},
    "compile": {"metavar": "PATH", "help": "compile such a file into the folder of the results, and end"},
    "translator": {"default": "capture", "help": "what --export writes: capture, onnx"},
    "dump-graph": {"action": "store_true", "help": "print the graph of --export or --compile"},
}
"""Flags that some steps have, by name."""


def make_parser(description: Optional[str], *flags: str) -> argparse.ArgumentParser:
    """Make the parser of the flags that all steps have, and of these others."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batchsize", "-b", type=int, default=100, help="samples of a step")
    parser.add_argument("--epoch", "-e", type=int, default=20, help="sweeps over the data")
    parser.add_argument("--iterations", "-I", type=int, help="steps, in place of epochs")
    parser.add_argument("--unit", "-u", type=int, default=1000, help="units of a hidden layer")
    parser.add_argument("--out", "-o", type=Path, default=Path("result"), help="folder of the results")
    parser.add_argument("--resume", "-r", type=Path, help="weights to begin with, as in result/model.pt")
    parser.add_argument("--noplot", action="store_true", help="draw no picture of the losses")
    parser.add_argument("--use-fake-data", action="store_true", help="150 random samples to train, 100 to test")
    for name in flags:
        parser.add_argument(f"--{name}", **FLAGS[name])
    return parser


def load_data(arguments: argparse.Namespace) -> Tuple[TensorDataset, TensorDataset]:
    """Draw digits, 1250 to train and 500 to test, or make random numbers; rows of 784 pixels."""
    if arguments.use_fake_data:
        return TensorDataset(*fake_data(150, seed=0)), TensorDataset(*fake_data(100, seed=1))
    return read_or_make_digits(None, num_train=1250, num_test=500, is_flat=True)


def make_model(arguments: argparse.Namespace) -> nn.Sequential:
    """Make the perceptron, with the weights of `--resume` if there are any."""
    model = mlp.build(sizes=(784, arguments.unit, arguments.unit, 10))
    if arguments.resume:
        model.load_state_dict(torch.load(arguments.resume, weights_only=True))
    return model


def make_options(arguments: argparse.Namespace) -> porting.PortOptions:
    """Make the options that are part of the executable, and its folder if it is compiled; equal in all processes."""
    cache = arguments.out / "cache"
    return porting.PortOptions(
        micro_batch=arguments.batchsize,
        computation_order=arguments.computation_order,
        cache_dir=cache if cache.is_dir() else None,
    )


def end(arguments: argparse.Namespace, step: porting.ExportedStep, told: str) -> Losses:
    """End without training: print what was made, and on request the graph of the step."""
    print(told)
    if arguments.dump_graph:
        print(porting.dump_graph(step, "text").decode())
    return Losses()


def save(losses: Losses) -> None:
    """Write weights, losses and a picture, as the command line says, and print the results; nothing without losses.

    A report is printed as well, if one was made.
    """
    if not losses:
        return
    arguments = losses.measured.arguments
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.save(losses.measured.model.state_dict(), arguments.out / "model.pt")
    (arguments.out / "log.txt").write_text("\n".join(map(str, losses)) + "\n", encoding="utf-8")
    if not arguments.noplot:
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot(losses)
        figure.savefig(arguments.out / "loss.png")
    print(losses)
    if hasattr(losses.measured, "report"):
        print(losses.measured.report)
