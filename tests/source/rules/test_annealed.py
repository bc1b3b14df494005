"""Numbers that change from step to step, and what becomes of them."""

from __future__ import annotations

import pytest

PROGRAM = """
import argparse
import math
import torch
import torch.nn.functional as F
from data import batches
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
beta, cfg, args = 0.5, dict(k=0.1), argparse.Namespace(k=0.1)
def fit(out, y, k=1.0):
    return F.mse_loss(out, y) * k
def fit_annealed(out, y):
    return F.mse_loss(out, y) + beta * out.mean()
for epoch in range(3):
    {outer}
    for i, (x, y) in enumerate(torch.utils.data.DataLoader(batches, drop_last=True)):
        {inner}
        opt.zero_grad()
        loss.backward()
        opt.step()
"""


def list_places(find, outer, inner):
    found = find(PROGRAM.format(outer=outer, inner=inner))
    return [int(one.split(":")[1]) for one in found if one.startswith("C020")]


@pytest.mark.parametrize(
    ("outer", "inner", "line"),
    [
        ("beta = min(1.0, epoch / 10)", "out = model(x); loss = F.mse_loss(out, y) + beta * out.mean()", 16),
        ("beta = beta * 0.9", "loss = F.mse_loss(model(x, beta), y)", 16),
        ("pass", "w = math.exp(-i / 9); loss = F.mse_loss(model(x), y); loss = loss * w", 16),
        ("beta += 0.1", "loss = fit(model(x), y, beta)", 16),
        ("beta = min(1.0, epoch * 0.1)", "loss = fit_annealed(model(x), y)", 12),
        ("cfg['k'] += 0.1", "out = model(x); loss = F.mse_loss(out, y) + cfg['k'] * out.mean()", 16),
        ("args.k = min(1.0, epoch / 9)", "loss = args.k * F.mse_loss(model(x), y)", 16),
        ("pass", "out = model(x); loss = F.mse_loss(out, y); loss += (epoch / 10) * out.mean()", 16),
    ],
)
def test_an_annealed_number_in_the_loss_or_the_model(find, outer, inner, line):
    assert list_places(find, outer, inner) == [line]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("pass", "loss = beta * fit(model(x), y, beta)"),
        ("pass", "n = x.size(0); loss = F.mse_loss(model(x), y) / n"),
        ("lr = 0.1 * 0.9 ** epoch", "loss = F.mse_loss(model(x), y); print(lr, i + 1)"),
        ("pass", "out = model(x); loss = sum(out[t].mean() for t in range(3))"),
        ("beta = beta * 0.9", "loss = F.mse_loss(model(x), y); print(beta * loss.item())"),
    ],
)
def test_a_number_that_stays_or_goes_elsewhere(find, outer, inner):
    assert list_places(find, outer, inner) == []


ATTRIBUTE = """
    import torch
    from torch import nn
    from data import loader
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.alpha, self.other = nn.Linear(4, 3), 0.0, 0.0
        def forward(self, x):
            return self.fc(x) * self.alpha
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(9):
        {line}
        for x, y in loader:
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
"""


@pytest.mark.parametrize("line", ["net.alpha = min(1.0, epoch / 9)", "net.alpha = net.alpha * 0.9"])
def test_an_attribute_that_forward_reads_is_annealed(find, line):
    assert [place for place in find(ATTRIBUTE.format(line=line)) if place.startswith("C020")] == ["C020:13"]


@pytest.mark.parametrize("line", ["net.other = min(1.0, epoch / 9)", "net.alpha = 0.5", "net.alpha = load('alpha')"])
def test_an_attribute_that_forward_does_not_read_or_that_stays(find, line):
    assert [place for place in find(ATTRIBUTE.format(line=line)) if place.startswith("C020")] == []


def test_an_attribute_by_what_a_trainer_counts(find):
    program = """
        import lightning
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.alpha = nn.Linear(4, 3), 0.0
            def forward(self, x):
                return self.fc(x).relu() * self.alpha
        class Lit(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = Net()
            def on_train_epoch_end(self):
                self.net.alpha = min(1.0, self.current_epoch / 10)
    """

    assert find(program) == ["C020:14"]


@pytest.mark.parametrize(("port", "count"), [("", 1), ("model = porting.to_ipu(model, loop='host')", 0)])
def test_a_number_for_a_part_that_is_called_beside_a_port_stays_on_the_host(find, port, count):
    program = f"""
import porting, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.part(x, 0.5)
    def sample(self, x):
        for step in range(10):
            x = self.part(x, step / 10)
        return x
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{port}
for x in torch.utils.data.DataLoader(torch.ones(8, 4)):
    model(x).mean().backward()
    optimizer.step()
model.sample(torch.ones(1, 4))
"""

    assert [one.split(":")[0] for one in find(program)].count("C020") == count
