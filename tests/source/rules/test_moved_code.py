"""Code that a port moves into `forward`: losses, metrics and label transforms are judged as what stands there."""

from __future__ import annotations

import pytest

PLAIN = """
import functools
import sys
import torch
import torch.nn.functional as F
from data import batches
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{functions}
for x, y in torch.utils.data.DataLoader(batches, drop_last=True):
    out = model(x)
    {loss}
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
PORT = """
import torch
import porting
from data import batches
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{functions}
ported = porting.to_ipu(model, {given}, optimizer=opt)
for x, y in ported.dataloader(batches):
    out, loss = ported(x, y)
"""


def list_codes(find, program):
    return [one.split(":")[0] for one in find(program) if one.startswith(("C0", "D020"))]


@pytest.mark.parametrize(
    ("functions", "loss", "code"),
    [
        ("def fit(o, y):\n    return torch.masked_select(o, y > 0).mean()", "loss = fit(out, y)", "C002"),
        (
            "def fit(o, y):\n    if o.max() > 3:\n        o = o / 2\n    return F.mse_loss(o, y)",
            "loss = fit(out, y)",
            "C001",
        ),
        (
            "def fit(o, y):\n    return fold(o - y).mean()\ndef fold(d):\n    return d if d.mean() > 0 else -d",
            "loss = fit(out, y)",
            "C001",
        ),
        ("fit = lambda o, y: o.mean() if o.sum() > 0 else y.mean()", "loss = fit(out, y)", "C001"),
        (
            "class Fit:\n    def part(self, o, y):\n        return (o - y)[y > 0].mean()\n"
            "    def all(self, o, y):\n        return 2 * self.part(o, y)",
            "loss = Fit().all(out, y)",
            "C002",
        ),
        (
            "def fit(o, y, k):\n    return F.mse_loss(o, y) if o.max() > k else o.mean()",
            "loss = functools.partial(fit, k=2)(out, y)",
            "C001",
        ),
        (
            "def fit(o, y):\n    return o[torch.nonzero(y)].mean()\nLOSSES = {'a': fit}",
            "loss = LOSSES[sys.argv[1]](out, y)",
            "C002",
        ),
        ("", "loss = (out[y > 0] - 1).pow(2).mean()", "C002"),
    ],
)
def test_a_loss_is_judged_as_forward_is(find, functions, loss, code):
    assert list_codes(find, PLAIN.format(functions=functions, loss=loss)) == [code]


@pytest.mark.parametrize(
    "port",
    ["model = porting.to_ipu(model, loop='host')", "porting.integrations.DeviceCalls(model, device='ipu').install()"],
)
@pytest.mark.parametrize("loss", ["loss = (out[y > 0] - 1).mean()", "loss = compute(out, y)"])
def test_a_loss_that_stays_on_the_host_may_choose_elements_and_read_values(find, port, loss):
    functions = (
        "import porting, porting.integrations\ndef compute(out, y):\n    return out.mean() / int((y >= 0).sum())"
    )
    program = PLAIN.format(functions=functions, loss=loss).replace("for x, y", f"{port}\nfor x, y", 1)

    assert list_codes(find, program) == []


@pytest.mark.parametrize(
    ("functions", "loss", "codes"),
    [
        (
            "def score(o, y):\n    return (o.argmax(1) == y).float().mean().item()",
            "loss = F.mse_loss(out, y); s = score(out, y)",
            ["D020"],
        ),
        (
            "def fit(o, y, w=None):\n    if o.shape[0] > 3 and w is not None:\n        o = o * w\n"
            "    return F.mse_loss(o, y)",
            "loss = fit(out, y)",
            [],
        ),
        ("def tell(l):\n    print(l.item())", "loss = F.mse_loss(out, y); tell(loss)", ["D020"]),
        (
            "def step(x, y):\n    l = F.mse_loss(model(x), y)\n    if l > 3: print('high')\n"
            "    l.backward()\n    return l",
            "loss = step(x, y)",
            ["D020"],
        ),
        ("", "loss = F.mse_loss(out, y); y = y[y > 0]", []),
    ],
)
def test_what_stays_in_the_loop_is_judged_as_the_loop_is(find, functions, loss, codes):
    assert list_codes(find, PLAIN.format(functions=functions, loss=loss)) == codes


@pytest.mark.parametrize(
    ("functions", "given"),
    [
        ("def fit(o, y):\n    return o.mean() if o.sum() > 0 else y.mean()", "fit"),
        ("", "lambda o, y: (o[y > 0] - 1).mean()"),
        ("def part(o, y):\n    return torch.masked_select(o, y > 0).mean()", "{'a': part}"),
        ("def known(y):\n    return y[y >= 0]", "torch.nn.CrossEntropyLoss(), label_transform=known"),
        (
            "def hits(o, y):\n    return (o.argmax(1) == y).sum().item()",
            "torch.nn.CrossEntropyLoss(), metrics={'hits': hits}",
        ),
    ],
)
def test_what_a_port_is_given_is_in_its_step(find, functions, given):
    assert list_codes(find, PORT.format(functions=functions, given=given))


@pytest.mark.parametrize(
    ("functions", "given"),
    [
        ("def fit(o, y):\n    return torch.where(y > 0, o, -o).mean()", "fit"),
        ("def fit(o, y):\n    return o.mean() if o.sum() > 0 else y.mean()", "fit, loop='host'"),
    ],
)
def test_a_sound_loss_or_a_loop_on_the_host_is_no_finding(find, functions, given):
    assert not list_codes(find, PORT.format(functions=functions, given=given))
