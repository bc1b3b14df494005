"""What is collected of a program as a whole, in the order in which it would run."""

from __future__ import annotations

from pathlib import Path

from porting.source import Facts, Kind, collect_facts, read_programs
from porting.source.facts import LoopKind

MNIST = """
import torch
import torch.nn.functional as F
from torch import nn, optim
from torchvision import datasets


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def forward(self, x):
        return F.log_softmax(self.fc(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()


def test(model, device, test_loader):
    model.eval()
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data.to(device))
            pred = output.argmax(dim=1, keepdim=True)


def main():
    device = torch.device("cuda")
    train_loader = torch.utils.data.DataLoader(datasets.MNIST("data"), batch_size=64)
    test_loader = torch.utils.data.DataLoader(datasets.MNIST("data", train=False), batch_size=64)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, 15):
        train(None, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)


if __name__ == "__main__":
    main()
"""


def facts_of(folder: Path, text: str) -> Facts:
    path = folder / "train.py"
    path.write_text(text)
    return collect_facts(read_programs([path]))


def test_the_things_of_an_ordinary_training_are_found(tmp_path):
    facts = facts_of(tmp_path, MNIST)

    (model,) = [thing for thing in facts.list_things(Kind.MODULE) if thing.name == "train.Net"]
    (optimizer,) = facts.list_things(Kind.OPTIMIZER)
    assert optimizer.parts[0].parts == (model,)
    assert [loader.name for loader in facts.list_things(Kind.LOADER)] == ["torch.utils.data.DataLoader"] * 2
    assert not facts.is_ported


def test_a_step_in_a_function_stands_in_the_loops_that_lead_there(tmp_path):
    facts = facts_of(tmp_path, MNIST)

    (backward,) = [call for call in facts.calls if call.is_method("backward")]
    assert backward.is_on(Kind.LOSS)
    assert backward.where.function == "train.train"
    assert [loop.kind for loop in backward.where.loops] == [LoopKind.EPOCHS, LoopKind.BATCHES]
    assert not backward.where.in_evaluation


def test_a_validation_stands_under_no_grad_and_eval(tmp_path):
    facts = facts_of(tmp_path, MNIST)

    (guess,) = [call for call in facts.calls if call.is_method("argmax")]
    assert guess.is_on(Kind.OUTPUT)
    assert guess.where.without_gradients
    assert guess.where.in_evaluation


def test_facts_come_in_the_order_of_the_program(tmp_path):
    facts = facts_of(tmp_path, MNIST)

    orders = [call.where.order for call in facts.calls]
    assert orders == sorted(orders)
    names = [call.name for call in facts.calls]
    assert names.index("train.train") < names.index(".backward") < names.index("train.test")
