"""What a step assumes of its model: small changes that a comparison of values would not see, and large models."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from porting import to_ipu

BATCH = torch.rand(6, 4), torch.randint(3, (6,))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 3), nn.Parameter(torch.ones(1))
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("same_shift", self.shift)
        self.linear.forward = lambda x: nn.functional.linear(x, self.linear.weight)

    def forward(self, x):
        return self.linear(x) * self.scale + self.shift


def exchange_the_scale(model):
    model.scale = nn.Parameter(torch.ones(1))


def exchange_the_shift(model):
    model.shift = torch.zeros(())


def exchange_a_forward_of_its_own(model):
    model.linear.forward = lambda x: 0 * nn.functional.linear(x, model.linear.weight)


def take_the_forward_away(model):
    del model.linear.forward


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def exchange_a_class(model):
    model.linear.__class__ = Doubled


def add_a_hook_to_all_modules(_model):
    nn.modules.module.register_module_forward_pre_hook(lambda module, args: None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (exchange_the_scale, r"a parameter was exchanged after the step was compiled \(`scale`\)"),
        (exchange_the_shift, r"a buffer was exchanged after the step was compiled \(`shift`\)"),
        (exchange_a_forward_of_its_own, r"`forward` of a module was exchanged .* \(`linear`\)"),
        (take_the_forward_away, r"`forward` of a module was exchanged .* \(`linear`\)"),
        (exchange_a_class, r"the class of a module was exchanged .* \(`linear`\)"),
        (add_a_hook_to_all_modules, "a hook of all modules was added or removed"),
    ],
)
def test_what_is_equal_is_not_the_same(change, message):
    ported = to_ipu(Scaled(), nn.CrossEntropyLoss(), device="sim")
    ported(*BATCH)
    change(ported.model)

    try:
        with pytest.warns(UserWarning, match=message):
            ported(*BATCH)
    finally:
        nn.modules.module._global_forward_pre_hooks.clear()


@pytest.mark.parametrize("num_outputs", [3, 5])
@pytest.mark.parametrize("remedy", ["destroy", "call, destroy", "port again"])
def test_a_new_head_begins_with_its_own_values(remedy, num_outputs):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    ported = to_ipu(model, nn.CrossEntropyLoss(), device="sim")
    ported(*BATCH)
    model[0].weight.data.mul_(2)
    model[2], model[1] = nn.Linear(6, num_outputs), nn.BatchNorm1d(6)
    before = copy.deepcopy([*model[2].state_dict().values(), *model[1].state_dict().values()])

    if "call" in remedy:
        with pytest.warns(UserWarning, match="a module was exchanged"):
            ported(*BATCH)
    if "destroy" in remedy:
        ported.destroy()
    else:
        to_ipu(model, nn.CrossEntropyLoss(), device="sim").compile(*BATCH)

    assert all(map(torch.equal, [*model[2].state_dict().values(), *model[1].state_dict().values()], before))


def test_a_look_in_inference_mode_leaves_weights_and_state_as_they_are():
    model = nn.Sequential(nn.Linear(4, 3))
    optimizer = torch.optim.Adam(model.parameters())
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")
    ported(*BATCH)
    with torch.inference_mode():
        model[0].weight.sum(), optimizer.state_dict()

    tensors = [*model.parameters(), *(state["exp_avg"] for state in optimizer.state.values())]

    assert not any(tensor.is_inference() for tensor in tensors)


def test_each_part_of_a_large_model_is_seen_after_as_many_calls_as_there_are_shares():
    model = nn.Sequential(*(nn.Linear(4, 4) for _layer in range(30)), nn.Linear(4, 3))
    ported = to_ipu(model, nn.CrossEntropyLoss(), device="sim")
    ported(*BATCH)
    shares = -(-len(list(model.parameters())) // 8)
    model[17].bias = nn.Parameter(torch.zeros(4))

    with pytest.warns(UserWarning, match=r"a parameter was exchanged .*`17.bias`"):
        [ported(*BATCH) for _call in range(shares)]


def test_an_attribute_that_forward_does_not_read_is_not_said():
    ported = to_ipu(nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss(), device="sim")
    ported(*BATCH)
    ported.model.best = ported.model[0].name = 1.0

    ported(*BATCH)


def test_a_class_of_torchs_that_gets_another_forward_is_told(monkeypatch):
    ported = to_ipu(nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss(), device="sim")
    ported(*BATCH)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: 2 * nn.functional.linear(x, self.weight, self.bias))

    with pytest.warns(UserWarning, match="`Linear.forward` has changed since the step was compiled"):
        ported(*BATCH)


def port(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_a_layer_that_is_parametrized_after_a_call_trains_when_it_is_ported_again(name):
    model = nn.Sequential(nn.Linear(4, 3))
    ported = port(model)
    ported(*BATCH)

    getattr(parametrizations, name)(model[0])
    ported.destroy()
    plain, again = copy.deepcopy(model), port(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    nn.functional.cross_entropy(plain(BATCH[0]), BATCH[1]).backward()
    optimizer.step()
    again(*BATCH)

    torch.testing.assert_close(dict(model.named_parameters()), dict(plain.named_parameters()))
