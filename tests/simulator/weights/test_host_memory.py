from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu


def find_memory(tensor: torch.Tensor) -> int:
    """Return where a tensor lies, without the look at it that fetches what was trained."""
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.data_ptr(tensor)


def find_device_memory(ported, name: str = "0.weight") -> int:
    state = ported.device_executor.device_session.compiled.state
    found = {**state.parameters, **state.buffers[0]}
    # the port puts the model into a module of its own
    return next(tensor for key, tensor in found.items() if key.endswith(name)).data_ptr()


@pytest.fixture
def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.fixture
def batch():
    return torch.randn(6, 4), torch.randint(3, (6,))


def make_port(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(engine="replay", **options))


@pytest.mark.parametrize("name", ["0.weight", "2.bias", "1.running_mean"])
def test_weights_that_nobody_looks_at_have_no_memory_of_their_own(model, batch, name):
    tensor = dict([*model.named_parameters(), *model.named_buffers()])[name]
    ported = make_port(model)

    ported(*batch)

    assert find_memory(tensor) == find_device_memory(ported, name)


def test_an_alias_of_a_weight_shows_what_each_call_has_trained(model, batch):
    ported = make_port(model)
    ported(*batch)

    seen = model[0].weight.detach()
    values = seen.clone()
    ported(*batch)

    assert not torch.equal(seen, values)
    assert torch.equal(seen, model[0].weight)


def test_an_alias_from_before_the_port_shows_it_too(model, batch):
    alias = model[0].weight.detach()
    before = alias.clone()
    ported = make_port(model)

    ported(*batch)

    assert not torch.equal(alias, before)
    assert torch.equal(alias, model[0].weight)


def test_without_an_alias_no_call_fetches_anything(model, batch, monkeypatch):
    ported = make_port(model)
    ported(*batch)
    _looked_at = model[0].weight.sum()
    fetched = []
    monkeypatch.setattr(ported.device_executor, "copyWeightsToHostIfNeeded", lambda: fetched.append(True))

    ported(*batch)
    ported(*batch)

    assert fetched == []


def test_a_weight_in_the_memory_of_an_array_stays_there(model, batch):
    values = torch.randn(8, 4).numpy()
    model[0].weight = nn.Parameter(torch.from_numpy(values))
    ported = make_port(model)

    ported(*batch)
    ported.copy_weights_to_host()

    assert model[0].weight.detach().numpy().ctypes.data == values.ctypes.data


def test_a_write_between_two_calls_reaches_the_device(model, batch):
    ported = make_port(model)
    ported(*batch)

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()

    torch.testing.assert_close(ported(*batch)[1], torch.tensor(3.0).log())


def test_sending_weights_without_a_look_discards_nothing(model, batch):
    ported, twin = make_port(model), make_port(copy.deepcopy(model))
    for port in (ported, twin):
        port(*batch)

    ported.copy_weights_to_device()

    assert torch.equal(ported(*batch)[1], twin(*batch)[1])


def test_the_weights_outlive_the_device(model, batch):
    ported = make_port(model)
    ported(*batch)
    trained = ported.device_executor.device_session.compiled.state.parameters
    expected = next(value.clone() for name, value in trained.items() if name.endswith("0.weight"))

    ported.destroy()

    assert type(model[0].weight) is nn.Parameter
    assert torch.equal(model[0].weight, expected)
    assert model[0].weight.is_contiguous()


def test_the_weights_outlive_a_port_that_nobody_keeps(model, batch):
    ported = make_port(model)
    ported(*batch)
    expected = ported.state_dict()["0.weight"].clone()
    ported(*batch)
    del ported

    assert not torch.equal(model[0].weight, expected)


def test_a_program_written_for_poptorch_keeps_both_copies(model, batch):
    import porting.simulator as poptorch

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, x, label):
            out = self.layers(x)
            return out, nn.functional.cross_entropy(out, label)

    whole = WithLoss()
    executor = poptorch.trainingModel(whole, optimizer=poptorch.optim.SGD(whole.parameters(), lr=0.5))
    executor(*batch)
    state = executor.device_session.compiled.state

    assert find_memory(model[0].weight) != state.parameters["layers.0.weight"].data_ptr()


def test_an_inference_beside_the_training_has_what_was_trained(model, batch):
    ported = make_port(model)
    infer = ported.inference()
    ported(*batch)
    first = infer(batch[0])

    ported(*batch)

    assert not torch.equal(infer(batch[0]), first)
    expected = model.eval()(batch[0])
    torch.testing.assert_close(infer(batch[0]), expected)
