"""Programs of trainer libraries, as short as they can be."""

from __future__ import annotations

__all__ = ["ACCELERATE", "IGNITE", "LIGHTNING", "TRANSFORMERS"]

LIGHTNING = """\
import lightning.pytorch as pl
import torch
from torch import nn


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def training_step(self, batch, number):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def choose():
    return "auto"


trainer = pl.Trainer(max_epochs=1)
trainer.fit(Net(), torch.randn(8, 4))
"""

IGNITE = """\
import torch
from ignite.engine import create_supervised_evaluator, create_supervised_trainer
from torch import nn

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = create_supervised_trainer(model, optimizer, nn.MSELoss())
evaluator = create_supervised_evaluator(model)
trainer.run([(torch.randn(8, 4), torch.randn(8, 2))])
"""

ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(mixed_precision="fp16")
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(3):
    loss = model(torch.randn(8, 4)).sum()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""

TRANSFORMERS = """\
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

bert = BertForSequenceClassification(BertConfig())
arguments = TrainingArguments("out", fp16=True)
trainer = Trainer(
    model=bert,
    args=arguments,
)
trainer.train()
"""
