"""Three processes share the work: one exports the step, one compiles it, one trains with the executable."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

import porting
from porting.adapters import masked_accuracy
from porting.recipe_chain import Losses
from porting.recipes.mnist_export_compile import workload
from porting.recipes.mnist_export_compile.workload import FLAGS, SMALL, load_data, make_model, make_parser, save

IGNORED = -1  # a label that is none; the data set and the loss have to agree


def train(num_steps: int = 0, words: Optional[Sequence[str]] = SMALL) -> Losses:
    """Train as a command line says, or for `num_steps`; return the losses, and how many digits are recognised."""
    arguments = make_parser(__doc__, *FLAGS).parse_args(words)
    torch.manual_seed(0)
    train_set, test_set = load_data(arguments)
    padded = porting.FixedBatchDataset(train_set, arguments.batchsize, ignore_label=IGNORED)
    dataset: Any = train_set if arguments.no_use_fixed_batch_dataset else padded
    loader = DataLoader(dataset, batch_size=arguments.batchsize, drop_last=arguments.no_use_fixed_batch_dataset)
    num_steps = num_steps or arguments.iterations or arguments.epoch * len(loader)
    model = make_model(arguments)
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
    optimizer = torch.optim.Adam(model.parameters())
    options = workload.make_options(arguments)
    if arguments.export:
        settings: Any = {"optimizer": optimizer, "options": options, "translator": arguments.translator}
        step = porting.export(model, criterion, next(iter(loader)), arguments.export, **settings)
        return workload.end(arguments, step, f"{arguments.export}: {step.batch}")
    if arguments.compile:
        step = porting.load_step(arguments.compile)
        made = porting.compile_step(step, engine="aot", cache_dir=arguments.out / "cache")
        return workload.end(arguments, step, f"{made.summary}: {made.origin}")
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
    return Losses(
        losses[:num_steps], test_accuracy=accuracy.item(), model=model, arguments=arguments, report=ported.report()
    )


if __name__ == "__main__":
    save(train(words=None))
