"""A model with its loss in `forward` gives what the plain model and loss give, under the same names."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.loss import LossInForward
from porting.adapters.loss_terms import LossTerm
from porting.diagnostics import CaptureError, OptionError, PortingError

X = torch.linspace(-1, 1, 24).reshape(6, 4)
Y = torch.tensor([0, 1, 2, 0, 1, 2])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.head(self.norm(self.body(x))) * self.scale


class Heads(nn.Module):
    def __init__(self, form=dict):
        super().__init__()
        self.kind, self.depth, self.form = nn.Linear(4, 3), nn.Linear(4, 1), form

    def forward(self, x):
        results = {"kind": self.kind(x), "depth": self.depth(x)}
        return results if self.form is dict else self.form(results.values())


class OwnLoss(nn.Module):
    """A model that returns its loss, in the form that `wrap` gives it."""

    def __init__(self, wrap):
        super().__init__()
        self.layer, self.wrap = nn.Linear(4, 3), wrap

    def forward(self, x, y=None):
        logits = self.layer(x)
        return logits if y is None else self.wrap(logits, F.cross_entropy(logits, y))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def wrap(poptorch):
    return lambda *args, **kwargs: LossInForward(*args, backend=poptorch, **kwargs)


class NoBackend:
    """A backend of which a model that is never called needs nothing."""

    identity_loss = isRunningOnIpu = None  # noqa: N815 - the vendor's spelling


def run(poptorch, wrapped, *batch, **named):
    """One training step on the device with plain SGD."""
    executor = poptorch.trainingModel(wrapped, optimizer=poptorch.optim.SGD(wrapped.parameters(), lr=0.1))
    try:
        return executor(*batch, **named)
    finally:
        executor.destroy()


# -- one loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(), F.cross_entropy, lambda output, label: (output - 1).pow(2).mean()]
)
def test_output_and_loss_are_those_of_the_plain_model(net, wrap, loss):
    plain = copy.deepcopy(net)

    output, value = wrap(net, loss)(X, Y)

    expected = plain(X)
    assert torch.equal(output, expected)
    assert torch.equal(value, loss(expected, Y))


def test_gradients_are_those_of_the_plain_model(net, wrap):
    plain = copy.deepcopy(net)

    wrap(net, nn.CrossEntropyLoss())(X, Y)[1].backward()

    F.cross_entropy(plain(X), Y).backward()
    assert all(torch.equal(ours.grad, theirs.grad) for ours, theirs in zip(net.parameters(), plain.parameters()))


def test_a_step_on_the_device_is_a_step_of_plain_torch(net, wrap, poptorch):
    plain = copy.deepcopy(net)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)

    _, loss = run(poptorch, wrap(net, nn.CrossEntropyLoss()), X, Y)

    expected = F.cross_entropy(plain(X), Y)
    expected.backward()
    optimizer.step()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(dict(net.named_parameters()), dict(plain.named_parameters()))
    torch.testing.assert_close(net.norm.running_var, plain.norm.running_var)


def test_without_labels_the_output_is_plain(net, wrap):
    output = wrap(net, nn.CrossEntropyLoss())(X)

    assert isinstance(output, torch.Tensor)
    assert output.shape == (6, 3)


def test_labels_are_found_by_name(net, wrap, poptorch):
    output, loss = run(poptorch, wrap(net, F.cross_entropy, label="target"), x=X, target=Y)

    assert output.shape == (6, 3)
    assert loss.shape == ()


def test_a_batch_of_keywords_needs_no_name_for_the_only_other_one(net, wrap):
    wrapped = wrap(net, F.cross_entropy)

    assert torch.equal(wrapped(x=X, anything=Y)[1], wrapped(X, Y)[1])


def test_several_labels_come_as_a_tuple(net, wrap):
    wrapped = wrap(net, lambda output, labels: (F.cross_entropy(output, labels[0]) * labels[1]).mean(), label=(1, 2))

    _, loss = wrapped(X, Y, torch.full((6,), 2.0))

    torch.testing.assert_close(loss, 2 * wrap(net, F.cross_entropy)(X, Y)[1])


def test_labels_are_transformed_before_the_loss_and_returned_so(net, wrap):
    one_hot = F.one_hot(Y, 3)
    wrapped = wrap(net, F.cross_entropy, label_transform=lambda y: y.argmax(1), returns=("output", "labels", "loss"))

    output, labels, loss = wrapped(X, one_hot)

    assert torch.equal(labels, Y)
    assert torch.equal(loss, F.cross_entropy(output, Y))


def test_a_reduction_makes_the_loss_a_scalar(net, wrap):
    mean = wrap(copy.deepcopy(net), nn.CrossEntropyLoss())(X, Y)[1]

    loss = wrap(net, nn.CrossEntropyLoss(reduction="none"), reduction="mean")(X, Y)[1]

    assert torch.equal(loss, mean)


def test_a_loss_of_one_element_becomes_a_scalar_on_the_device(net, wrap, poptorch):
    _, loss = run(poptorch, wrap(net, lambda output, label: F.cross_entropy(output, label).reshape(1)), X, Y)

    assert loss.shape == ()


def test_a_loss_inside_the_model_does_not_become_the_final_one(wrap, poptorch):
    class Penalised(nn.Linear):
        def forward(self, x):
            output = super().forward(x)
            return output, F.mse_loss(output, torch.zeros_like(output))

    torch.manual_seed(0)
    model = Penalised(4, 3)
    plain = copy.deepcopy(model)

    run(poptorch, wrap(model, lambda output, label: F.cross_entropy(output[0], label) + output[1]), X, Y)

    output, penalty = plain(X)
    (F.cross_entropy(output, Y) + penalty).backward()
    torch.testing.assert_close(model.weight, plain.weight - 0.1 * plain.weight.grad)


# -- several losses and metrics ------------------------------------------------------------------------------------

LABELS = {"kind": Y, "depth": torch.ones(6, 1)}


def test_losses_by_name_compare_outputs_and_labels_of_that_name(wrap, poptorch):
    model = Heads()
    expected = F.cross_entropy(model.kind(X), Y) + F.mse_loss(model.depth(X), LABELS["depth"])
    wrapped = wrap(model, {"kind": nn.CrossEntropyLoss(), "depth": nn.MSELoss()})

    _, loss = run(poptorch, wrapped, X, LABELS)

    torch.testing.assert_close(loss, expected.detach())


def test_labels_passed_one_by_one_reach_the_loss_of_their_name(wrap):
    model, losses = Heads(), {"kind": nn.CrossEntropyLoss(), "depth": nn.MSELoss()}

    _, loss = wrap(model, losses, label=("depth", "kind"))(X, **LABELS)

    assert torch.equal(loss, wrap(model, losses)(X, LABELS)[1])


def test_one_label_serves_all_losses_by_name(wrap):
    wrapped = wrap(
        Heads(), {"kind": F.cross_entropy, "depth": lambda depth, label: (depth.mean() - label.float().mean()) ** 2}
    )

    _, loss = wrapped(X, Y)

    assert loss.shape == ()


def test_terms_say_output_label_and_weight(wrap):
    terms = {
        "kind": LossTerm(F.cross_entropy, output=0, label=1),
        "depth": LossTerm(F.mse_loss, output=1, label=0, weight=0.5),
    }
    model = Heads(form=tuple)

    output, loss, losses = wrap(model, terms, label=(-2, -1), returns=("output", "loss", "losses"))(
        X, LABELS["depth"], Y
    )

    assert torch.equal(losses["kind"], F.cross_entropy(output[0], Y))
    assert torch.equal(losses["depth"], 0.5 * F.mse_loss(output[1], LABELS["depth"]))
    assert torch.equal(loss, losses["kind"] + losses["depth"])


@pytest.mark.parametrize(
    ("terms", "labels", "code"),
    [
        ({"mask": F.mse_loss}, LABELS, "L007"),
        ({"kind": LossTerm(F.cross_entropy, output=2)}, Y, "L007"),
        ({"kind": LossTerm(F.cross_entropy, output="kind", label="class")}, LABELS, "L006"),
        ({"kind": LossTerm(F.cross_entropy, output="kind", label="class")}, Y, "L006"),
        ({"kind": F.cross_entropy}, {"depth": Y}, "L006"),
    ],
)
def test_a_term_without_its_output_or_label_is_an_error(wrap, terms, labels, code):
    with pytest.raises(PortingError) as caught:
        wrap(Heads(), terms)(X, labels)

    assert caught.value.code == code


def accuracy(output, label):
    return (output.argmax(1) == label).float().mean()


def test_metrics_are_returned_by_name(net, wrap, poptorch):
    expected = accuracy(copy.deepcopy(net)(X), Y)

    output, loss, metrics = run(poptorch, wrap(net, F.cross_entropy, metrics={"accuracy": accuracy}), X, Y)

    torch.testing.assert_close(metrics["accuracy"], expected)


def test_a_built_in_loss_as_a_metric_is_no_second_loss(net, wrap, poptorch):
    plain = copy.deepcopy(net)
    metrics = {"error": lambda output, label: F.mse_loss(output, F.one_hot(label.long(), 3).float())}

    _, loss, values = run(poptorch, wrap(net, F.cross_entropy, metrics=metrics), X, Y)

    output = plain(X)
    F.cross_entropy(output, Y).backward()
    torch.testing.assert_close(values["error"], F.mse_loss(output, F.one_hot(Y, 3).float()).detach())
    torch.testing.assert_close(net.head.weight, plain.head.weight - 0.1 * plain.head.weight.grad)


def test_a_metric_that_is_not_a_number_does_not_spoil_the_loss(net, wrap):
    metrics = {"bad": lambda output, label: output.sum() * float("nan")}

    _, loss, _ = wrap(net, F.cross_entropy, metrics=metrics)(X, Y)
    loss.backward()

    assert loss.isfinite()
    assert net.head.weight.grad.isfinite().all()


# -- the model's own loss ------------------------------------------------------------------------------------------

Result = namedtuple("Result", ["loss", "logits"])
WRAPS = {
    "a tuple with the loss last": lambda logits, loss: (logits, loss),
    "a dictionary": lambda logits, loss: {"loss": loss, "logits": logits},
    "a named tuple": lambda logits, loss: Result(loss, logits),
    "the loss alone": lambda logits, loss: loss,
}


@pytest.mark.parametrize("form", WRAPS)
def test_the_models_own_loss_is_used_and_its_result_comes_back_in_its_form(wrap, poptorch, form):
    model = OwnLoss(WRAPS[form])
    expected = model(X, Y)
    wrapped = wrap(model)

    returned = run(poptorch, wrapped, X, Y)

    assert type(returned) is type(expected)
    torch.testing.assert_close(wrapped.loss_of(returned), wrapped.loss_of(expected).detach())


def test_the_models_own_loss_can_be_pointed_at(wrap):
    wrapped = wrap(OwnLoss(lambda logits, loss: (loss, logits)), loss_output=0)

    returned = wrapped(X, Y)

    assert wrapped.loss_of(returned) is returned[0]


def test_a_model_that_should_return_its_loss_and_does_not_is_an_error(wrap):
    with pytest.raises(PortingError, match="the model's own loss gives a loss of shape") as caught:
        wrap(OwnLoss(WRAPS["a dictionary"]))(X)

    assert caught.value.code == "L002"


def test_for_inference_a_model_returns_what_it_likes(wrap, poptorch):
    model = OwnLoss(WRAPS["a dictionary"])

    output = poptorch.inferenceModel(wrap(model).for_inference())(X)

    torch.testing.assert_close(output, model(X).detach())


# -- what is wrong with a loss -------------------------------------------------------------------------------------


def test_a_loss_with_several_elements_is_an_error_with_its_shape(net, wrap):
    with pytest.raises(PortingError, match=r"`CrossEntropyLoss` gives a loss of shape \[6\]") as caught:
        wrap(net, nn.CrossEntropyLoss(reduction="none"))(X, Y)

    assert caught.value.code == "L002"
    assert caught.value.finding.place.file == __file__


def test_a_detached_loss_is_an_error(net, wrap):
    with pytest.raises(PortingError) as caught:
        wrap(net, lambda output, label: F.cross_entropy(output.detach(), label))(X, Y)

    assert caught.value.code == "L003"


def test_a_loss_read_as_a_number_is_an_error(net, wrap):
    with pytest.raises(PortingError, match="a Python float") as caught:
        wrap(net, lambda output, label: F.cross_entropy(output, label).item())(X, Y)

    assert caught.value.code == "L003"


def test_evaluation_without_gradients_is_no_detached_loss(net, wrap):
    with torch.no_grad():
        _, loss = wrap(net, F.cross_entropy)(X, Y)

    assert not loss.requires_grad


def test_an_error_while_tracing_leaves_a_usable_model(net, wrap, poptorch):
    names = list(net.state_dict())
    wrapped = wrap(net, nn.CrossEntropyLoss(reduction="none"))
    executor = poptorch.trainingModel(wrapped, optimizer=poptorch.optim.SGD(wrapped.parameters(), lr=0.1))

    with pytest.raises(PortingError, match="L002"):
        executor(X, Y)

    assert list(net.state_dict()) == names
    assert net(X).shape == (6, 3)


# -- printing ------------------------------------------------------------------------------------------------------


def test_printing_a_tensor_while_the_device_traces_is_an_error():
    class Talkative(nn.Linear):
        def forward(self, x):
            str(x)
            return super().forward(x)

    class Tracing:
        identity_loss = staticmethod(lambda loss, reduction: loss)
        isRunningOnIpu = staticmethod(lambda: True)  # noqa: N815 - the vendor's spelling

    class OnDevice(torch.Tensor):
        device = torch.device("ipu:0")

    wrapped = LossInForward(Talkative(4, 3), F.cross_entropy, backend=Tracing)

    with pytest.raises(CaptureError) as caught:
        wrapped(X.as_subclass(OnDevice), Y)

    assert caught.value.code == "C010"
    assert caught.value.finding.place.file == __file__


def test_printing_is_free_on_the_host(wrap):
    class Talkative(nn.Linear):
        def forward(self, x):
            assert "tensor" in str(x)
            return super().forward(x)

    _, loss = wrap(Talkative(4, 3), F.cross_entropy)(X, Y)

    assert loss.isfinite()


# -- the model stays the user's ------------------------------------------------------------------------------------


def test_names_and_tensors_are_the_models_own(net, wrap):
    wrapped = wrap(net, nn.CrossEntropyLoss())

    assert list(wrapped.state_dict()) == list(net.state_dict())
    assert dict(wrapped.named_parameters()) == dict(net.named_parameters())
    assert [id(buffer) for buffer in wrapped.buffers()] == [id(buffer) for buffer in net.buffers()]
    assert type(net) is Net


def test_the_state_loads_into_the_plain_model_and_back(net, wrap):
    wrapped, plain = wrap(net, nn.CrossEntropyLoss()), Net()

    plain.load_state_dict(wrapped.state_dict())
    nn.init.zeros_(net.head.weight)
    wrapped.load_state_dict(plain.state_dict())

    assert torch.equal(net.head.weight, plain.head.weight)


def test_foreign_keys_are_refused_as_torch_does(net, wrap):
    with pytest.raises(RuntimeError, match="Unexpected key"):
        wrap(net, nn.CrossEntropyLoss()).load_state_dict({**net.state_dict(), "model.head.weight": X})

    assert "head.weight" in wrap(net, nn.CrossEntropyLoss()).load_state_dict({}, strict=False).missing_keys


def test_a_loss_with_buffers_works_on_the_device_and_stays_out_of_the_state(net, wrap, poptorch):
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    expected = loss(copy.deepcopy(net)(X), Y)
    wrapped = wrap(net, loss)

    _, value = run(poptorch, wrapped, X, Y)

    torch.testing.assert_close(value, expected.detach())
    assert list(wrapped.state_dict()) == list(net.state_dict())
    assert dict(wrapped.named_buffers())["loss.weight"] is loss.weight
    assert "loss.weight" in wrapped.state_dict(keep_vars=True)


def test_a_learnable_loss_is_trained(net, wrap, poptorch):
    class Learnable(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.tensor(1.0))

        def forward(self, output, label):
            return F.cross_entropy(output * self.temperature, label)

    loss = Learnable()

    run(poptorch, wrap(net, loss), X, Y)

    assert loss.temperature.item() != 1.0


def test_a_model_with_a_layer_called_loss_keeps_it(wrap):
    model = nn.Sequential()
    model.add_module("loss", nn.Linear(4, 3))
    wrapped = wrap(model, nn.CrossEntropyLoss(weight=torch.ones(3)))

    assert wrapped.loss is model.loss
    assert dict(wrapped.named_buffers())["loss_.weight"].shape == (3,)
    assert list(model._modules) == ["loss"]


def test_train_and_eval_reach_model_and_loss(net, wrap):
    loss = nn.CrossEntropyLoss()
    wrapped = wrap(net, loss)

    wrapped.eval()

    assert not any(module.training for module in (wrapped, net, net.norm, loss))


def test_a_model_with_its_own_train_keeps_it(wrap):
    class Frozen(Net):
        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    model = Frozen()

    wrap(model, F.cross_entropy).train()

    assert model.training
    assert not model.norm.training


def test_copies_are_independent_and_whole(net, wrap):
    wrapped = wrap(net, nn.CrossEntropyLoss())

    duplicate = copy.deepcopy(wrapped)
    nn.init.zeros_(duplicate.head.weight)

    assert duplicate(X)[0, 0] != wrapped(X)[0, 0]
    assert net.head.weight.any()


def test_a_pickled_model_computes_the_same(wrap):
    torch.manual_seed(0)
    wrapped = wrap(nn.Linear(4, 3), nn.CrossEntropyLoss())

    duplicate = pickle.loads(pickle.dumps(wrapped))

    assert torch.equal(duplicate(X, Y)[1], wrapped(X, Y)[1])


def test_a_lazy_model_gets_its_shapes_from_the_first_batch(wrap, poptorch):
    wrapped = wrap(nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.Linear(5, 3)), nn.CrossEntropyLoss())
    with torch.no_grad():
        wrapped(X)

    _, loss = run(poptorch, wrapped, X, Y)

    assert loss.shape == ()
    assert wrapped.state_dict()["0.weight"].shape == (5, 4)


# -- what is refused when it is made -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": nn.CrossEntropyLoss}, "`loss` is the class CrossEntropyLoss"),
        ({"loss": "cross entropy"}, "`loss` is 'cross entropy'"),
        ({"loss": {}}, "`loss` is an empty mapping"),
        ({"loss": {"a": 1}}, "`loss['a']` is 1"),
        ({"loss": F.mse_loss, "label": None}, "`label` is None"),
        ({"loss": F.mse_loss, "reduction": "max"}, "`reduction` is 'max'"),
        ({"loss": F.mse_loss, "returns": ("output",)}, "`returns` is ('output',)"),
        ({"loss": F.mse_loss, "returns": ("loss", "loss")}, "`returns` is ('loss', 'loss')"),
        ({"loss": F.mse_loss, "returns": ("loss", "metrics")}, "`returns` names 'metrics', but there are none"),
        ({"loss": F.mse_loss, "loss_output": 0}, "`loss_output` is for models that return their own loss"),
        ({"label": "y"}, "`label` has no meaning without `loss`"),
        ({"metrics": {"a": accuracy}}, "`metrics` has no meaning without `loss`"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(net, wrap, arguments, message):
    with pytest.raises(OptionError) as caught:
        wrap(net, **arguments)

    assert message in caught.value.finding.message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: F.relu, "`model` is a function"),
        (lambda: nn.DataParallel(Net()), "`model` is wrapped in DataParallel"),
        (lambda: torch.jit.script(nn.Linear(2, 2)), "`model` is a TorchScript module"),
        (lambda: torch.compile(Net(), backend="eager"), "`model` was compiled with `torch.compile`"),
        (lambda: LossInForward(Net(), F.mse_loss, backend=NoBackend), "`model` has its loss in `forward` already"),
    ],
)
@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_what_is_no_plain_module_is_refused(wrap, make, message):
    with pytest.raises(OptionError) as caught:
        wrap(make(), F.cross_entropy)

    assert message in caught.value.finding.message


def test_a_model_wrapped_for_the_device_already_is_refused(net, wrap, poptorch):
    poptorch.trainingModel(net, optimizer=poptorch.optim.SGD(net.parameters(), lr=0.1))

    with pytest.raises(OptionError, match="wrapped for training on a device already"):
        wrap(net, F.cross_entropy)


def test_a_view_for_another_backend_marks_the_loss_as_that_one_does(poptorch):
    seen = []

    def identity_loss(loss, reduction):
        seen.append(reduction)
        return loss

    other = SimpleNamespace(identity_loss=identity_loss, isRunningOnIpu=lambda: False)
    wrapped = LossInForward(Net(), nn.CrossEntropyLoss(), backend=poptorch)

    view = wrapped.for_backend(other)

    assert torch.equal(view(X, Y)[1], wrapped(X, Y)[1])
    assert seen == ["none"]
    assert view.state_dict().keys() == wrapped.state_dict().keys()


# -- the loss of an output alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{}, {"label_transform": lambda y: y.flip(0)}, {"reduction": "sum"}],
    ids=["plain", "changed labels", "a sum"],
)
def test_the_loss_of_an_output_is_that_of_the_call(settings, net, wrap):
    wrapped = wrap(net, nn.CrossEntropyLoss(reduction="none" if "reduction" in settings else "mean"), **settings)

    output, loss = wrapped(X, Y)

    assert torch.equal(wrapped.find_loss_of(output, Y), loss)


def test_a_model_with_a_loss_of_its_own_has_none_of_an_output(wrap):
    assert wrap(OwnLoss(lambda logits, loss: (logits, loss))).find_loss_of(X, Y) is None
