"""Weights and gradients that something else than the optimizer touches."""

from __future__ import annotations

import pytest

PROGRAM = """
import copy
import torch
from torch import nn
import torch.nn.functional as F
from data import batches
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.w = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))
        {made}
    def forward(self, x):
        {inside}
        return self.fc(x) * self.w
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for x, y in torch.utils.data.DataLoader(batches, drop_last=True):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    {between}
    opt.step()
    opt.zero_grad()
    {behind}
"""
CODES = ("C003", "C006", "D009", "D020", "O003", "O015")


def write(**parts):
    return PROGRAM.format(**{**dict.fromkeys(("made", "inside", "before", "between", "behind"), "pass"), **parts})


def list_codes(find, **parts):
    return [one.split(":")[0] for one in find(write(**parts)) if one.startswith(CODES)]


@pytest.mark.parametrize(
    "line",
    [
        "for p in model.parameters(): p.grad.data.clamp_(-1, 1)",
        "n = sum(p.grad.norm() ** 2 for p in model.parameters())",
        "for p in model.parameters(): p.grad += torch.randn_like(p)",
        "for p in model.parameters(): p.grad = p.grad * 0.5",
        "for g in opt.param_groups: g['params'][0].grad.mul_(2)",
        "grads = {n: p.grad.clone() for n, p in model.named_parameters()}",
    ],
)
def test_a_gradient_that_the_loop_wants_is_on_the_device(find, line):
    assert list_codes(find, between=line) == ["D009"]


@pytest.mark.parametrize(
    "line",
    [
        "for p in model.parameters(): p.data.clamp_(-1, 1)",
        "model.fc.weight.data = F.normalize(model.fc.weight.data)",
        "for p in model.parameters(): p.data *= 0.9",
        "nn.init.normal_(model.fc.weight)",
        "model.apply(lambda m: m.weight.data.clamp_(0, 1) if hasattr(m, 'weight') else None)",
    ],
)
def test_a_weight_that_the_loop_changes_in_each_step(find, line):
    assert list_codes(find, behind=line) == ["O015"]


@pytest.mark.parametrize(
    "before",
    [
        "for p in model.parameters(): p.data.uniform_(-1, 1)",
        "model.fc.weight.data.zero_()",
        "for p in model.fc.parameters(): p.requires_grad_(False)",
        "assert all(p.grad is None for p in model.parameters())",
    ],
)
def test_weights_are_prepared_before_the_loop(find, before):
    assert list_codes(find, before=before) == []


@pytest.mark.parametrize(
    "line",
    [
        "for e, p in zip(ema.parameters(), model.parameters()): e.data.mul_(0.9).add_(p.data, alpha=0.1)",
        "for e, p in zip(ema.parameters(), model.parameters()): e.copy_(0.9 * e + 0.1 * p)",
        "kept = {k: 0.1 * v.data for k, v in model.named_parameters()}",
        "for k, v in model.state_dict().items(): shadow[k] = 0.9 * shadow.get(k, v) + 0.1 * v",
        "torch.optim.swa_utils.AveragedModel(model).update_parameters(model)",
    ],
)
def test_an_average_of_weights_reads_them_in_each_step(find, line):
    assert list_codes(find, before="ema = copy.deepcopy(model); shadow = {}", behind=line) == ["D020"]


def test_a_hook_on_a_weight_wants_its_gradient(find):
    line = "for p in model.parameters(): p.register_hook(lambda g: g.clamp(-1, 1))"

    assert list_codes(find, before=line) == ["D009"]


@pytest.mark.parametrize(
    "line",
    [
        "self.fc.weight.data = F.normalize(self.fc.weight.data)",
        "self.w.data.clamp_(0, 1)",
        "self.w = nn.Parameter(self.w * 2)",
        "setattr(self.fc, 'weight', self.fc.weight / self.fc.weight.norm())",
    ],
)
def test_a_weight_that_forward_changes(find, line):
    assert list_codes(find, inside=line) == ["C006"]


@pytest.mark.parametrize("line", ["setattr(self, 'calls', 3)", "self.seen.copy_(x.mean())", "self.calls = 3"])
def test_forward_may_keep_numbers_and_change_buffers(find, line):
    assert list_codes(find, inside=line) == []


@pytest.mark.parametrize(
    "made",
    [
        "self.heads = [nn.Linear(4, 3) for _ in range(3)]",
        "self.heads = {'a': nn.Linear(4, 3)}",
        "self.ws = [nn.Parameter(torch.zeros(3))]",
    ],
)
def test_modules_in_a_plain_list_or_dictionary_are_hidden(find, made):
    assert list_codes(find, made=made) == ["C003"]


@pytest.mark.parametrize(
    "made",
    [
        "self.heads = [self.fc]",
        "self.acts = {'relu': nn.ReLU(), 'tanh': nn.Tanh()}",
        "layers = [nn.Linear(4, 4)]; self.net = nn.Sequential(*layers)",
        "self.kinds = {'a': nn.Linear}",
        "b = nn.Linear(4, 4); self.add_module('b', b); self.blocks = [b]",
    ],
)
def test_modules_that_are_registered_or_have_no_weights_may_be_in_a_list(find, made):
    assert list_codes(find, made=made) == []


@pytest.mark.parametrize(
    "before",
    [
        "z = torch.zeros(3, requires_grad=True); o = torch.optim.Adam([z])",
        "a = nn.Parameter(torch.ones(1)); o = torch.optim.SGD([{'params': [a]}])",
    ],
)
def test_an_optimizer_of_what_no_model_has(find, before):
    assert list_codes(find, before=before) == ["O003"]


@pytest.mark.parametrize("given", ["[model.w]", "[model.fc.weight]", "[{'params': model.fc.parameters()}]"])
def test_an_optimizer_of_a_part_of_the_model(find, given):
    assert list_codes(find, before=f"o = torch.optim.Adam({given})") == []


def test_a_function_that_fills_weights_as_those_of_torch_do_is_no_update(find):
    program = """
        import torch
        def fill_normal_(tensor):
            with torch.no_grad():
                return tensor.erfinv_().mul_(0.1)
        model = torch.nn.Linear(4, 3)
        fill_normal_(model.weight)
    """

    assert find(program) == []


@pytest.mark.parametrize("line", ["t.data.copy_(0.9 * t.data + 0.1 * p.data)", "t.data = 0.9 * t.data + 0.1 * p.data"])
def test_a_moving_average_of_weights_is_a_read_and_no_update(find, line):
    program = f"""
        import copy
        import torch
        from torch import nn
        from data import loader
        model = nn.Linear(4, 3)
        target = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            nn.functional.cross_entropy(model(x), y).backward()
            for p, t in zip(model.parameters(), target.parameters()):
                {line}
    """

    assert [place for place in find(program) if place.startswith(("D020", "O015"))] == ["D020:11"]
