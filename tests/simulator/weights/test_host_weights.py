"""Weights on the host and on the device: which copy is where, and what brings them together."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn

LOOKS = {
    "parameters()": lambda model: list(model.parameters()),
    "named_parameters()": lambda model: dict(model.named_parameters()),
    "buffers()": lambda model: list(model.buffers()),
    "state_dict()": lambda model: model.state_dict(),
    "state_dict() further down": lambda model: model.linear.state_dict(),
    "an attribute of a parameter": lambda model: model.linear.weight.data,
    "shape": lambda model: model.linear.weight.shape,
    "grad": lambda model: model.linear.weight.grad,
    "torch function": lambda model: torch.equal(model.linear.weight, torch.ones(2, 3)),
    "torch function, swapped": lambda model: torch.equal(torch.ones(2, 3), model.linear.weight),
    "arithmetic": lambda model: 1 + model.linear.weight,
    "str": lambda model: str(model.linear.weight),
    "repr": lambda model: repr(model.linear.weight),
    "a parameter of the top module": lambda model: model.scale,
    "a buffer": lambda model: model.steps.item(),
    "forward": lambda model: model(torch.ones(1, 3), torch.ones(1, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of a parameter": lambda model: copy.deepcopy(model.linear.weight),
    "pickle of a parameter": lambda model: pickle.dumps(model.linear.weight),
    "torch.save": lambda model: torch.save(model.linear, io.BytesIO()),
}


@pytest.fixture
def model(regression):
    """Give a `Regression` with a parameter and a buffer of its own."""
    regression.scale = nn.Parameter(torch.ones(1))
    regression.register_buffer("steps", torch.zeros(1))
    return regression


@pytest.fixture
def trained(poptorch, model, batch):
    """Give an executor that has run once."""
    executor = poptorch.trainingModel(model)
    executor(*batch)
    return executor


@pytest.fixture
def num_fetches(trained):
    """Give a list that grows with each copy of the weights to the host."""
    fetches = []
    original = trained.copyWeightsToHost

    def counted():
        fetches.append(1)
        original()

    trained.copyWeightsToHost = counted
    return fetches


# -- two copies


def test_weights_changed_on_the_host_do_not_reach_the_device(poptorch, model, batch):
    executor = poptorch.inferenceModel(model)
    loss = executor(*batch)[1]

    with torch.no_grad():
        model.linear.weight.zero_()

    assert torch.equal(executor(*batch)[1], loss)


def test_copying_to_the_device_sends_the_hosts_weights(poptorch, model, batch):
    executor = poptorch.inferenceModel(model)
    executor(*batch)
    with torch.no_grad():
        model.linear.weight.zero_()
        model.linear.bias.zero_()

    executor.copyWeightsToDevice()

    assert not executor(*batch)[0].any()


def test_copying_to_the_host_discards_what_was_changed_there(poptorch, model, batch):
    executor = poptorch.inferenceModel(model)
    executor(*batch)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model.linear.weight.zero_()
        model.steps.add_(1)

    executor.copyWeightsToHost()

    torch.testing.assert_close(model.state_dict(), before)


def test_copying_to_the_host_from_inference_outlasts_what_was_trained_before(poptorch, model, batch):
    inference, executor = poptorch.inferenceModel(model), poptorch.trainingModel(model)
    inference(*batch)
    before = copy.deepcopy(model.state_dict())
    executor(*batch)

    inference.copyWeightsToHost()

    torch.testing.assert_close(model.state_dict(), before)


def test_copying_to_the_device_discards_what_was_trained_there(trained, batch):
    executor = trained
    before = executor.device_session.compiled.state.parameters["linear.weight"].detach().clone()

    executor.copyWeightsToDevice()

    after = executor.device_session.compiled.state.parameters["linear.weight"]
    assert not torch.equal(after, before)
    assert torch.equal(after, executor.model.linear.weight)


def test_loading_a_state_reaches_the_device(trained, batch):
    zeros = {name: torch.zeros_like(value) for name, value in trained.model.state_dict().items()}

    result = trained.load_state_dict(zeros)

    assert list(result.missing_keys) == []
    assert not trained(*batch)[0].any()


def test_loading_an_incomplete_state_tells_what_is_missing(trained):
    result = trained.load_state_dict({}, strict=False)

    assert "linear.weight" in result.missing_keys


def test_loading_into_the_users_model_does_not_reach_the_device(trained, batch):
    zeros = {name: torch.zeros_like(value) for name, value in trained.model.state_dict().items()}

    trained.model.load_state_dict(zeros)

    assert trained(*batch)[0].any()


# -- looking at the weights


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_the_weights_fetches_them(trained, num_fetches, look):
    LOOKS[look](trained.model)

    assert len(num_fetches) == 1


def test_calls_fetch_nothing(trained, num_fetches, batch):
    trained(*batch)
    trained(*batch)

    assert not num_fetches


def test_looking_again_fetches_nothing(trained, num_fetches):
    trained.model.state_dict()

    trained.model.state_dict()
    print(trained.model.linear.weight)  # noqa: T201

    assert len(num_fetches) == 1


def test_looking_before_a_call_fetches_nothing(poptorch, model, batch):
    executor = poptorch.trainingModel(model)
    executor.compile(*batch)

    model.state_dict()

    assert executor._host_weights_version == 0


def test_weights_are_fetched_through_the_executor_too(trained, num_fetches):
    trained.state_dict()

    assert len(num_fetches) == 1


def test_an_implicit_fetch_is_logged(trained, debug_log):
    trained.model.linear.weight.sum()

    assert "Implicit copyWeightsToHost()" in debug_log()


def test_fetching_if_needed_tells_whether_it_was(trained):
    assert trained.copyWeightsToHostIfNeeded()
    assert not trained.copyWeightsToHostIfNeeded()


def test_the_users_model_can_be_asked_to_fetch(trained):
    assert trained.model.copyWeightsToHostIfNeeded()
    assert not trained.model.copyWeightsToHostIfNeeded()


def test_every_fetch_is_a_new_version(trained):
    trained.copyWeightsToHost()
    trained.copyWeightsToHost()

    assert trained._host_weights_version == 2


def test_weights_are_fetched_into_the_same_memory(trained):
    address = torch.Tensor.data_ptr(trained.model.linear.weight)

    trained.copyWeightsToHost()

    assert trained.model.linear.weight.data_ptr() == address


def test_buffers_are_fetched_with_the_weights(poptorch, batch):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x, target):
            self.calls += 1
            return nn.functional.mse_loss(self.linear(x), target)

    model = Counts()
    executor = poptorch.trainingModel(model)

    executor(*batch)

    assert model.calls.item() == 1


def test_converted_weights_are_fetched_in_the_hosts_type(trained, batch):
    trained.model.half()
    trained(*batch)

    trained.copyWeightsToHost()

    assert trained.model.linear.weight.dtype == torch.float16
    assert trained.model.steps.dtype == torch.float16


def test_executing_on_the_host_uses_the_trained_weights(trained, batch):
    on_host = trained.model(*batch)[1]

    on_device = trained(*batch)[1]

    torch.testing.assert_close(on_host.detach(), on_device)


def test_wrapped_weights_can_be_trained_on_the_host(trained, batch):
    optimizer = torch.optim.SGD(trained.model.parameters(), lr=0.1)
    before = trained.model.linear.weight.detach().clone()

    trained.model(*batch)[1].backward()
    optimizer.step()

    assert not torch.equal(trained.model.linear.weight, before)


# -- state_dict


@pytest.mark.parametrize("name", ["linear.weight", "steps"])
def test_tensors_of_two_executors_can_be_compared(poptorch, model, batch, name):
    other = copy.deepcopy(model)
    for one in (model, other):
        poptorch.trainingModel(one)(*batch)
    first, second = ({**dict(one.named_parameters()), **dict(one.named_buffers())}[name] for one in (model, other))

    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first, second.detach())
    with pytest.raises(AssertionError, match="not close|not equal"):
        torch.testing.assert_close(first, second + 1)


def test_plain_tensors_are_not_those_of_an_executor(trained):
    assert not isinstance(torch.ones(1), trained.PoptorchBuffer)
    assert not isinstance(nn.Parameter(torch.ones(1)), trained.PoptorchParameter)


@pytest.mark.parametrize(
    "use",
    [
        lambda one, other: one == other,
        lambda one, other: one - other,
        lambda one, other: torch.stack([one, other]),
        lambda one, other: one.data.__setitem__(0, other[0]),
        lambda one, other: other in one,
        lambda one, other: one.__setitem__((), other),
    ],
    ids=["==", "-", "stack", "item of another", "in", "item"],
)
def test_an_operator_on_tensors_of_two_executors_fetches_from_both(poptorch, model, batch, use):
    executors = [poptorch.trainingModel(each) for each in (model, copy.deepcopy(model))]
    for executor in executors:
        executor(*batch)
    one, other = (executor.model.linear.weight for executor in executors)

    with torch.no_grad():
        use(one, other)

    assert not any(executor._dirty_host_weights for executor in executors)


def test_a_buffer_formats_as_a_number(poptorch, trained, batch):
    trained.model.register_buffer("rate", torch.tensor(0.25))
    trained.destroy()
    trained(*batch)

    assert f"{trained.model.rate:.3f}" == "0.250"
    with pytest.raises(TypeError, match="unsupported format string passed to Parameter.__format__"):
        format(trained.model.linear.weight, ".3f")


def test_asking_for_the_kind_of_a_parameter_fetches_nothing(trained, num_fetches):
    assert isinstance(trained.model.linear.weight, nn.Parameter)

    assert num_fetches == []


def test_asking_for_names_fetches_nothing(trained, num_fetches):
    assert "linear.weight" in trained.getTensorNames()

    assert num_fetches == []


def test_a_state_goes_into_the_dictionary_given_for_it(trained):
    destination = OrderedDict(before=1)

    state = trained.model.state_dict(destination=destination)

    assert state is destination
    assert {"before", "linear.weight"} <= set(destination)


def test_a_state_has_plain_classes(trained):
    state = trained.model.state_dict()

    assert isinstance(state, OrderedDict)
    assert {type(value) for value in state.values()} == {torch.Tensor}


def test_a_state_shares_memory_with_the_model(trained):
    state = trained.model.state_dict()

    assert state["linear.weight"].data_ptr() == trained.model.linear.weight.data_ptr()


def test_tied_weights_are_aliases_in_a_state(poptorch, regression, batch):
    regression.again = regression.linear
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    state = regression.state_dict()

    assert state["again.weight"].data_ptr() == state["linear.weight"].data_ptr()


def test_a_state_can_keep_the_parameters_themselves(trained):
    state = trained.model.state_dict(keep_vars=True)

    assert state["linear.weight"] is trained.model.linear.weight


def test_a_state_may_have_a_prefix(trained):
    assert "top.linear.weight" in trained.model.state_dict(prefix="top.")


def test_a_state_loads_into_a_plain_model(trained, regression, batch):
    other = type(regression)._poptorch_original_class()
    other.scale = nn.Parameter(torch.ones(1))
    other.register_buffer("steps", torch.zeros(1))

    other.load_state_dict(trained.state_dict())

    assert torch.equal(other(*batch)[1], trained.model(*batch)[1])


# -- identity


def test_tied_weights_are_one_tensor_on_the_device(poptorch):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False)
            self.second = nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return nn.functional.mse_loss(self.second(self.first(x)), torch.ones_like(x))

    torch.manual_seed(0)
    model = Tied()
    eager = copy.deepcopy(model)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    x = torch.ones(1, 2)

    poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))(x)
    eager(x).backward()
    optimizer.step()

    torch.testing.assert_close(model.second.weight.detach(), eager.first.weight.detach())
    assert model.second.weight is model.first.weight


def test_parameters_outside_the_optimizer_are_not_trained(poptorch, regression, batch):
    before = regression.linear.bias.detach().clone()
    optimizer = poptorch.optim.SGD([regression.linear.weight], lr=0.1, weight_decay=0.1)

    poptorch.trainingModel(regression, optimizer=optimizer)(*batch)

    assert torch.equal(regression.linear.bias, before)


def test_parameters_in_the_same_memory_are_recognised(poptorch, regression, batch):
    before = regression.linear.weight.detach().clone()
    alias = nn.Parameter(regression.linear.weight.detach())

    poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD([alias], lr=0.1))(*batch)

    assert not torch.equal(regression.linear.weight, before)


def test_parameters_of_another_model_in_the_optimizer_do_not_compile(poptorch, regression, batch):
    optimizer = poptorch.optim.SGD([*regression.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)

    with pytest.raises(KeyError):
        executor(*batch)


def test_parameters_of_another_model_in_a_later_optimizer_are_warned_of(poptorch, regression, batch, caplog):
    executor = poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD(regression.parameters(), lr=0.1))
    executor(*batch)
    later = poptorch.optim.SGD([*regression.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)

    for _ in range(2):
        executor.setOptimizer(later)

    assert caplog.text.count("1 parameters of the optimizer do not belong to the model") == 1


# -- models that change after compiling


def test_a_lost_buffer_does_not_stop_the_other_weights_from_being_fetched(trained, model, batch):
    model.steps = None
    before = model.linear.weight.detach().clone()
    trained(*batch)

    trained.destroy()

    assert not torch.equal(model.linear.weight, before)


def test_a_model_that_lost_a_buffer_cannot_be_sent_to_the_device(poptorch, trained, model):
    model.steps = None

    with pytest.raises(poptorch.Error, match="The model was compiled with steps and no longer has it"):
        trained.copyWeightsToDevice()


def test_parameters_that_were_replaced_are_fetched_into_the_new_ones(trained, model):
    replacement = nn.Parameter(torch.zeros(2, 3))
    model.linear.weight = replacement

    trained.copyWeightsToHost()

    assert replacement.any()


# -- debug lines


def test_copies_are_logged_by_direction(poptorch, regression, batch, debug_log):
    executor = poptorch.trainingModel(regression)

    executor.compile(*batch)
    to_device = debug_log()
    executor.copyWeightsToHost()
    to_host = debug_log()

    assert "Writing weights from host to IPU memory." in to_device
    assert "Writing weights from IPU to host." in to_host
