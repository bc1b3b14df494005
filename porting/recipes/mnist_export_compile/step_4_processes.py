"""Three processes: one exports the step, one compiles it, one trains with the executable."""

from __future__ import annotations

import argparse
from typing import Any, Optional, Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

import porting
from porting.adapters import masked_accuracy
from porting.models import mlp
from porting.recipe_chain import Losses
from porting.recipes.mnist_export_compile.workload import load_data, make_model, make_parser, run

IGNORED = -1  # a label that is none; the data set and the loss have to agree


def parse_arguments(words: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--computation_order", default="none", help="what is computed twice: chen, gttime, gtmem")
    parser.add_argument("--export", metavar="PATH", help="write the training step to a file, and end")
    parser.add_argument("--compile", metavar="PATH", help="compile such a file into the folder of the results, and end")
    parser.add_argument("--translator", default="capture", help="what --export writes: capture, onnx")
    parser.add_argument("--dump-graph", action="store_true", help="print the graph of --export or --compile")
    parser.add_argument("--no_use_fixed_batch_dataset", action="store_true", help="drop the rest instead of padding")
    return parser.parse_args(words)


def options_of(arguments: argparse.Namespace) -> porting.PortOptions:
    """Say what is part of the executable, and where it lies; the same in all three processes."""
    cache = arguments.out / "cache"
    return porting.PortOptions(
        micro_batch=arguments.batchsize,
        computation_order=arguments.computation_order,
        cache_dir=cache if cache.is_dir() else None,
    )


def export_or_compile(arguments: argparse.Namespace) -> None:
    """Do what `--export` and `--compile` say."""
    if arguments.export:
        model = mlp.build(sizes=(784, arguments.unit, arguments.unit, 10))
        batch = torch.zeros(arguments.batchsize, 784), torch.zeros(arguments.batchsize, dtype=torch.int64)
        step = porting.export(
            model,
            nn.CrossEntropyLoss(ignore_index=IGNORED),
            batch,
            arguments.export,
            optimizer=torch.optim.Adam(model.parameters()),
            options=options_of(arguments),
            translator=arguments.translator,
        )
        print(f"{arguments.export}: {step.batch}")
    else:
        step = porting.load_step(arguments.compile)
        made = porting.compile_step(step, engine="aot", cache_dir=arguments.out / "cache")
        print(f"{made.summary}: {made.origin}")
    if arguments.dump_graph:
        print(porting.dump_graph(step, "text").decode())


def train(num_steps: int) -> Losses:
    """Train a smaller network for `num_steps` optimizer steps, as `train_and_test` does."""
    return train_and_test(parse_arguments(["--unit", "100", "--iterations", str(num_steps)]))


def train_and_test(arguments: argparse.Namespace) -> Losses:
    """Train; return the losses, the share of test digits recognised, and the trained port."""
    torch.manual_seed(0)
    train_set, test_set = load_data(arguments)
    padded = porting.FixedBatchDataset(train_set, arguments.batchsize, ignore_label=IGNORED)
    dataset: Any = train_set if arguments.no_use_fixed_batch_dataset else padded
    loader = DataLoader(dataset, batch_size=arguments.batchsize, drop_last=arguments.no_use_fixed_batch_dataset)
    num_steps = arguments.iterations or arguments.epoch * len(loader)
    model = make_model(arguments)
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
    optimizer = torch.optim.Adam(model.parameters())
    options = options_of(arguments)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(loader)
    losses = Losses()
    while len(losses) < num_steps:
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.item())

    padded = porting.FixedBatchDataset(test_set, arguments.batchsize, ignore_label=IGNORED)
    images, labels = default_collate([padded[index] for index in range(len(padded))])
    accuracy = masked_accuracy(ported.inference()(images), labels, IGNORED)
    return Losses(losses[:num_steps], test_accuracy=accuracy.item(), model=model, report=ported.report())


def main(words: Optional[Sequence[str]] = None) -> None:
    """Do what the command line says."""
    arguments = parse_arguments(words)
    if arguments.export or arguments.compile:
        return export_or_compile(arguments)
    losses = run(train_and_test, arguments)
    print(losses.measured.report)


if __name__ == "__main__":
    main()
