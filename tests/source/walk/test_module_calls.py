"""Modules, ports and criteria that are called: their `forward` is walked, and what it returns has its kinds."""

from __future__ import annotations

from porting.source import Kind

WITH_LOSS = """
import torch
from torch import nn
import poptorch, porting

class Block(nn.Module):
    def forward(self, x):
        print(x)
        return torch.relu(x)

class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.blocks = nn.Sequential(Block(), Block())
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        out = self.blocks(self.model(x))
        if labels is None:
            return out
        return out, self.loss(out, labels)

model = WithLoss(nn.Linear(3, 3))
x, y = torch.zeros(2, 3), torch.zeros(2)
"""


def test_a_forward_that_returns_a_loss_gives_an_output_and_a_loss(facts_of):
    facts = facts_of(WITH_LOSS + "out, loss = model(x, y)\nloss.backward()\nout.argmax(1)\n")
    kinds = {call.name: {one.kind for one in call.receiver} for call in facts.calls}

    assert kinds[".backward"] == {Kind.LOSS}
    assert kinds[".argmax"] == {Kind.OUTPUT}


def test_a_forward_without_labels_gives_an_output(facts_of):
    facts = facts_of(WITH_LOSS + "out = model(x)\nout.argmax(1)\n")
    (call,) = [call for call in facts.calls if call.is_method("argmax")]

    assert {one.kind for one in call.receiver} == {Kind.OUTPUT}


def test_what_a_chain_holds_is_walked_in_forward(facts_of):
    facts = facts_of(WITH_LOSS + "model(x, y)\n")
    (call,) = [call for call in facts.calls if call.name == "builtins.print"]

    assert call.where.in_forward
    assert call.where.function == "train.Block.forward"


def test_after_rebinding_calls_are_the_ports(facts_of):
    facts = facts_of(
        WITH_LOSS
        + """
model = poptorch.trainingModel(model, options=poptorch.Options())
out, loss = model(x, y)
loss.item()
model.to("cpu")
"""
    )
    calls = {call.name: call for call in facts.calls}

    assert {one.kind for one in calls["poptorch.trainingModel"].receiver} == {Kind.PORT}
    assert calls[".item"].is_on(Kind.LOSS)
    assert {one.kind for one in calls[".to"].receiver} == {Kind.PORT}


def test_to_ipu_gives_output_and_loss(facts_of):
    facts = facts_of(
        WITH_LOSS
        + """
ported = porting.to_ipu(nn.Linear(3, 3), nn.CrossEntropyLoss())
out, loss = ported(x, y)
loss.item()
ported.inference()(x).argmax(1)
for a, b in ported.dataloader([1]):
    pass
"""
    )
    calls = {call.name: call for call in facts.calls}

    assert {one.kind for one in calls[".item"].receiver} == {Kind.LOSS}
    assert {one.kind for one in calls[".argmax"].receiver} == {Kind.OUTPUT}
    assert len(facts.list_program_objects(Kind.PORT_LOADER)) == 1


def test_a_wrapper_walks_the_module_in_it(facts_of):
    facts = facts_of(WITH_LOSS + "torch.compile(nn.DataParallel(Block()))(x)\n")

    assert any(call.name == "builtins.print" and call.where.in_forward for call in facts.calls)


def test_a_loss_module_of_the_users_is_a_criterion(facts_of):
    facts = facts_of(
        WITH_LOSS
        + """
class DiceLoss(nn.Module):
    def forward(self, a, b):
        return 1 - (a * b).sum()

criterion = DiceLoss()
loss = criterion(nn.Linear(3, 3)(x), y)
loss.backward()
"""
    )
    (dice,) = [one for one in facts.list_program_objects(Kind.CRITERION) if one.name == "train.DiceLoss"]
    (loss,) = [one for one in facts.list_program_objects(Kind.LOSS) if dice in one.parts]

    assert loss.place.line == dice.place.line + 1


def test_lightning_methods_are_walked_though_nothing_calls_them(facts_of):
    facts = facts_of(
        """
        import torch, pytorch_lightning as pl
        import torch.nn.functional as F

        class Lit(pl.LightningModule):
            def forward(self, x):
                return x
            def training_step(self, batch, batch_idx):
                x, y = batch
                loss = F.cross_entropy(self(x), y)
                self.log("loss", loss)
                return loss
            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters())

        pl.Trainer().fit(Lit())
        """
    )
    (log,) = [call for call in facts.calls if call.is_method("log")]

    assert {one.kind for one in log.arguments[1]} == {Kind.LOSS}
    assert len(facts.list_program_objects(Kind.OPTIMIZER)) == 1
