"""`trainingModel` and `inferenceModel`: what they take, and what becomes of the user's model."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

ALREADY_WRAPPED = (
    "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap before "
    "wrapping again."
)


class OwnCopy(nn.Linear):
    """Copies itself by hand, without its lock."""

    def __init__(self):
        super().__init__(1, 1)
        self.lock = iter([])

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key != "lock"}


@pytest.fixture
def bare():
    """Give a module whose `forward` is an attribute of the object."""
    module = nn.Module()
    module.forward = lambda x, y: x + 2 * y
    return module


# -- what is taken


def test_a_model_cannot_be_wrapped_for_training_twice(poptorch, regression):
    executor = poptorch.trainingModel(regression)

    with pytest.raises(RuntimeError) as caught:
        poptorch.trainingModel(regression)

    assert str(caught.value) == ALREADY_WRAPPED
    assert executor.model is regression


def test_a_destroyed_model_can_be_wrapped_again(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    regression.destroy()

    assert not executor.isCompiled()
    assert poptorch.trainingModel(regression)(*batch)[1] > 0


def test_training_an_executors_model_is_refused_while_it_trains(poptorch, regression):
    executor = poptorch.trainingModel(regression)

    with pytest.raises(RuntimeError, match="Model has already been wrapped"):
        poptorch.trainingModel(executor)


def test_an_executor_is_accepted_in_the_place_of_its_model(poptorch, regression, batch):
    trained = poptorch.trainingModel(regression)

    inferred = poptorch.inferenceModel(trained)

    assert torch.equal(inferred(*batch)[1], regression(*batch)[1])


def test_an_inference_executors_model_can_be_trained(poptorch, regression, batch):
    executor = poptorch.trainingModel(poptorch.inferenceModel(regression))

    executor(*batch)

    assert executor.model is not regression
    assert executor.model.linear is regression.linear


def test_inference_changes_neither_class_nor_weights_of_the_model(poptorch, regression, batch):
    poptorch.inferenceModel(regression)(*batch)

    assert type(regression).__name__ == "Regression"
    assert type(regression.linear.weight) is nn.Parameter


def test_the_default_optimizer_is_sgd_with_a_learning_rate_of_one_percent(poptorch, regression):
    executor = poptorch.trainingModel(regression)

    assert type(executor._optimizer) is poptorch.optim.SGD
    assert executor._optimizer.param_groups[0]["lr"] == 0.01


def test_anything_but_a_module_is_refused_for_training(poptorch):
    with pytest.raises(poptorch.Error, match=r"trainingModel needs a torch.nn.Module, got <class 'int'>"):
        poptorch.trainingModel(1)


def test_forward_may_be_an_attribute_of_the_object(poptorch, bare):
    executor = poptorch.inferenceModel(bare)

    assert executor(torch.ones(2), y=torch.ones(2)).tolist() == [3.0, 3.0]


def test_forward_may_be_replaced_by_a_closure_over_the_original(poptorch, regression, batch):
    original = regression.forward
    regression.forward = lambda x, target: original(2 * x, target)

    executor = poptorch.trainingModel(regression)
    loss = executor(*batch)[1]

    assert loss > 0


def test_lazy_modules_are_materialised_and_trained(poptorch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))

    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x).square().mean(), nn.functional.l1_loss(self.model(x), x[:, :1])

    executor = poptorch.trainingModel(Task())
    executor(torch.ones(2, 3))
    before = executor.model.model[0].weight.detach().clone()

    executor(torch.ones(2, 3))

    assert model[0].weight.shape == (4, 3)
    assert not torch.equal(model[0].weight, before)


# -- what becomes of the model


def test_the_class_of_a_wrapped_model_is_derived_from_its_own(poptorch, regression):
    own = type(regression)

    poptorch.trainingModel(regression)

    assert type(regression).__name__ == "PoptorchRegression"
    assert isinstance(regression, own)


def test_weights_of_a_wrapped_model_stay_the_same_objects(poptorch, regression):
    weight = regression.linear.weight

    executor = poptorch.trainingModel(regression)

    assert regression.linear.weight is weight
    assert type(weight) is executor.PoptorchParameter
    assert isinstance(weight, nn.Parameter)


def test_buffers_of_a_wrapped_model_stay_the_same_objects(poptorch):
    model = nn.BatchNorm1d(2)
    mean = model.running_mean

    executor = poptorch.trainingModel(model)

    assert model.running_mean is mean
    assert type(mean) is executor.PoptorchBuffer
    assert isinstance(mean, torch.Tensor)


def test_a_wrapped_model_holds_its_executor_only_weakly(poptorch, regression):
    executor = poptorch.trainingModel(regression)
    reference = weakref.ref(executor)

    del executor

    assert reference() is None


@pytest.mark.parametrize(
    "buffer", [nn.Parameter(torch.ones(1)), torch.ones(1).as_subclass(type("T", (torch.Tensor,), {}))]
)
def test_buffers_of_a_class_of_their_own_are_refused(poptorch, regression, buffer):
    regression.register_buffer("odd", buffer)

    with pytest.raises(poptorch.Error, match=r"All buffers must be an instance of torch.Tensor \(Got "):
        poptorch.trainingModel(regression)

    assert type(regression.linear.weight) is nn.Parameter


def test_parameters_of_a_class_of_their_own_get_it_back(poptorch, regression, batch):
    class Named(nn.Parameter):
        pass

    regression.linear.weight = Named(torch.ones(2, 3))
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    executor.destroy()

    assert type(regression.linear.weight) is Named


def test_destroying_gives_all_plain_classes_back(poptorch, regression, batch):
    regression.register_buffer("steps", torch.zeros(1))
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    executor.destroy()

    assert type(regression).__name__ == "Regression"
    assert type(regression.linear.weight) is nn.Parameter
    assert type(regression.steps) is torch.Tensor


def test_only_wrapped_models_have_destroy(poptorch, regression):
    before = hasattr(regression, "destroy")

    poptorch.trainingModel(regression)

    assert (before, hasattr(regression, "destroy")) == (False, True)


def test_the_traced_copy_shares_modules_but_not_top_level_attributes(poptorch, regression):
    executor = poptorch.trainingModel(regression)

    regression.eval()

    assert executor._model.training
    assert not executor._model.linear.training


# -- copies and pickles


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_copies_of_a_wrapped_model_have_the_trained_weights(poptorch, regression, batch, copier):
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    copied = copier(regression)

    assert type(copied) is type(regression)
    assert torch.equal(copied.linear.weight, regression.linear.weight)


def test_a_deep_copy_does_not_share_memory(poptorch, regression):
    poptorch.trainingModel(regression)

    copied = copy.deepcopy(regression)

    assert copied.linear.weight.data_ptr() != regression.linear.weight.data_ptr()


def test_a_deep_copy_keeps_tied_weights_tied(poptorch, regression):
    regression.again = regression.linear
    poptorch.trainingModel(regression)

    copied = copy.deepcopy(regression)

    assert copied.again.weight is copied.linear.weight


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_a_models_own_way_of_copying_is_respected(poptorch, copier):
    model = OwnCopy()
    poptorch.trainingModel(model)

    copied = copier(model)

    assert "lock" not in vars(copied)


def test_a_pickle_of_a_wrapped_model_holds_plain_classes(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression.linear)
    model = executor.model

    loaded = pickle.loads(pickle.dumps(model))

    assert type(loaded) is nn.Linear
    assert type(loaded.weight) is nn.Parameter
    assert torch.equal(loaded.weight, model.weight)


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_saved_wrapped_model_loads_without_the_package(poptorch, tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    poptorch.trainingModel(model)

    torch.save(model, tmp_path / "model.pt")
    script = (
        "import sys, torch; sys.modules['porting'] = None; "
        f"model = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False); "
        "print(type(model), type(model[0].weight))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert shown.split() == [
        "<class",
        "'torch.nn.modules.container.Sequential'>",
        "<class",
        "'torch.nn.parameter.Parameter'>",
    ]


def test_a_pickled_optimizer_holds_plain_parameters(poptorch, regression):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.1)
    poptorch.trainingModel(regression, optimizer=optimizer)

    loaded = pickle.loads(pickle.dumps(optimizer))

    assert type(loaded.param_groups[0]["params"][0]) is nn.Parameter


# -- several executors of the same weights


class Generate(nn.Module):
    """Trains the first of two shared layers."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return nn.functional.mse_loss(self.second(self.first(x)), x)


@pytest.fixture
def pair(poptorch):
    """Give two layers and two training executors, each of which trains one of them."""
    torch.manual_seed(0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    executors = [
        poptorch.trainingModel(Generate(first, second), optimizer=torch.optim.SGD(layer.parameters(), lr=0.1))
        for layer in (first, second)
    ]
    return first, second, executors


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda tensor: pickle.loads(pickle.dumps(tensor))])
@pytest.mark.parametrize("name", ["weight", "steps"])
def test_copies_of_wrapped_tensors_have_the_attributes_that_torch_gives_them(poptorch, copier, name):
    model = nn.Linear(2, 2)
    model.register_buffer("steps", torch.zeros(2))
    getattr(model, name).tags = ["mine"]
    expected = getattr(copier(getattr(model, name)), "tags", None)
    poptorch.trainingModel(model)

    copied = copier(getattr(model, name))

    assert getattr(copied, "tags", None) == expected
    assert (copied.data_ptr() == getattr(model, name).data_ptr()) == (copier is copy.copy)


def test_models_that_share_layers_train_side_by_side(pair):
    first, second, (train_first, train_second) = pair
    before = first.weight.detach().clone()

    train_first(torch.ones(1, 2))

    assert not torch.equal(first.weight, before)


def test_each_of_several_executors_is_followed_by_the_shared_weights(pair):
    first, second, (train_first, train_second) = pair
    before = second.weight.detach().clone()

    train_second(torch.ones(1, 2))

    assert not torch.equal(second.weight, before)


def test_what_one_executor_trained_reaches_the_other_by_copying(pair):
    first, second, (train_first, train_second) = pair
    x = torch.ones(1, 2)
    train_second.compile(x)
    loss = train_first(x)

    train_second.copyWeightsToDevice()

    assert train_second(x) < loss


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_destroying_one_executor_leaves_shared_weights_to_the_other(pair, order):
    first, second, executors = pair
    layers = (first, second)
    x = torch.ones(1, 2)
    executors[0](x)
    executors[1](x)

    executors[order[0]].destroy()
    before = layers[order[1]].weight.detach().clone()
    executors[order[1]](x)

    assert not torch.equal(layers[order[1]].weight, before)


def test_destroying_all_executors_gives_shared_weights_their_classes_back(pair):
    first, second, executors = pair
    x = torch.ones(1, 2)
    executors[0](x)
    executors[1](x)

    executors[0].destroy()
    executors[1].destroy()

    assert type(first.weight) is type(second.weight) is nn.Parameter


# -- unwrapping for a while


def test_a_model_can_be_unwrapped_and_wrapped_again(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    unwrapped = poptorch._impl.unwrapModelIfNecessary(regression)
    plain = type(regression.linear.weight)
    poptorch._impl.rewrapModelIfNecessary(regression)

    assert unwrapped
    assert plain is nn.Parameter
    assert type(regression.linear.weight) is executor.PoptorchParameter


def test_unwrapping_fetches_what_was_trained(poptorch, regression, batch):
    before = regression.linear.weight.detach().clone()
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    poptorch._impl.unwrapModelIfNecessary(regression)

    assert not torch.equal(regression.linear.weight, before)


def test_a_plain_model_needs_no_unwrapping(poptorch, regression):
    assert not poptorch._impl.unwrapModelIfNecessary(regression)
    assert not poptorch._impl.rewrapModelIfNecessary(regression)
