"""Whatever a capture comes to, the model, torch and the caller's tensors are as they were."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.diagnostics import CaptureError

X = torch.rand(3, 4)
LABELS = torch.tensor([0, 1, 0])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        x = self.norm(x)
        return self.layers(x) * 2


class Breaking(Classifier):
    def forward(self, x):
        self.kept = self.norm(x)
        self.norm.weight.data.cpu()


def function(forward):
    """Make a module of `forward(self, ...)` without tensors of its own."""
    return type("Made", (nn.Module,), {"forward": forward})()


def inference(model, args=(), kwargs=None):
    return capture_step(model, args, kwargs, mode="inference")


def refused(model, args, **options):
    with pytest.raises(CaptureError) as caught:
        capture_step(model, args, **options)
    return caught.value.finding


@pytest.mark.parametrize("model", [Classifier(), Breaking()], ids=["captured", "refused"])
def test_the_model_is_as_it_was(model):
    before = copy.deepcopy(model.state_dict())
    tensors = {name: id(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    attributes = set(vars(model))

    try_to_capture(model)

    assert tensors == {name: id(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert set(vars(model)) == attributes


def try_to_capture(model):
    try:
        capture_step(model, [X, LABELS], loss=F.cross_entropy)
    except CaptureError:
        pass


def test_modes_stay_as_they_were_after_a_refusal():
    model = Breaking()
    model.norm.eval()

    refused(model, [X], mode="inference")

    assert model.training
    assert not model.norm.training


def test_no_hooks_are_left_after_a_refusal():
    hooks = nn.modules.module._global_forward_pre_hooks

    refused(Breaking(), [X], mode="inference")

    assert len(hooks) == 0


def test_torch_is_itself_again_after_a_refusal():
    refused(Breaking(), [X], mode="inference")

    assert torch.ones(2).sum().item() == 2.0
    assert torch.zeros(2).device.type == "cpu"
    assert torch.tensor(1.0).device.type == "cpu"


def test_the_model_trains_on_the_host_after_a_capture():
    model = Classifier()
    capture_step(model, [X, LABELS], loss=F.cross_entropy)

    F.cross_entropy(model(X), LABELS).backward()

    assert model.layers[0].weight.grad is not None


def test_a_refused_model_is_captured_once_it_is_mended():
    model = Breaking()
    refused(model, [X], mode="inference")
    model.__class__ = Classifier

    graph = inference(model, [X])

    assert graph.outputs[0].shape == (3, 2)


def test_the_global_generator_is_not_touched():
    before = torch.get_rng_state()

    inference(function(lambda self, x: F.dropout(x) + torch.randn(4) + torch.rand_like(x)), [X])

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_what_the_caller_switched_off_does_not_matter(context):
    with context():
        graph = capture_step(nn.Linear(4, 2), [X, LABELS], loss=F.cross_entropy)

    assert graph.loss_has_gradient


def test_the_example_keeps_no_trace_of_the_capture():
    x = torch.ones(3, 4, requires_grad=True)

    inference(nn.Linear(4, 2), [x])

    assert x.grad is None
    assert torch.equal(x, torch.ones(3, 4))
