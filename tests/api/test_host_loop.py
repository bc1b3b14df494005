"""A loop on the host: forward and backward on the device are those of eager PyTorch, bit for bit."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import BatchError, DeviceError, OptionError, PortingWarning


def port(model, **settings):
    return to_ipu(model, loop="host", device="sim", **settings)


def train_on_host(model, call, batches, make_optimizer=None, loss=F.cross_entropy):
    """The loop that people have; `call` is the model or its port."""
    optimizer = (make_optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.1)))(model.parameters())
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        value = loss(call(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters),
}


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_with_any_optimizer_is_eager_training(make_optimizer, make_model, batches):
    model, eager = make_model(), make_model()

    losses = train_on_host(model, port(model), batches, make_optimizer)

    assert losses == train_on_host(eager, eager, batches, make_optimizer)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in eager.state_dict().items())


LOSSES = {
    "focal": lambda output, y: ((1 - output.softmax(1)[range(len(y)), y]) ** 2 * F.cross_entropy(output, y)).mean(),
    "of some rows": lambda output, y: output[y > 0].square().sum() + 0 * output.sum(),
    "with Python": lambda output, y: output.sum() * (2.0 if y.sum().item() > 4 else 0.5),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_training_with_any_loss_is_eager_training(loss, make_model, batches):
    model, eager = make_model(), make_model()

    assert train_on_host(model, port(model), batches, loss=loss) == train_on_host(eager, eager, batches, loss=loss)


# torch 2.8 warns of what its own optimizer does
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
def test_lbfgs_which_calls_several_times_a_step_works(make_model, batches):
    losses = []
    for call in (lambda model: model, port):
        model = make_model().eval()
        called = call(model)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        x, y = batches[0]

        def closure(optimizer=optimizer, called=called, x=x, y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(called(x), y)
            loss.backward()
            return loss

        losses.append([optimizer.step(closure).item() for _step in range(3)])

    assert losses[0] == losses[1]


def gradients_of(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same_gradients(one, other):
    for name, gradient in gradients_of(one).items():
        expected = gradients_of(other)[name]
        assert (gradient is None) == (expected is None), name
        assert gradient is None or torch.equal(gradient, expected), name


class Several(nn.Module):
    """Returns numbers, integers and a part that the loss may leave out; has a parameter that nothing uses."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(4, 3), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x, extra=None):
        first, second = self.first(x), self.second(x)
        if extra is not None:
            first = first + extra["shift"]
        return {"first": first, "best": first.argmax(1), "others": (second, second.mean())}


def several():
    torch.manual_seed(0)
    return Several()


X, SHIFT = torch.rand(5, 4), torch.rand(5, 3)


@pytest.mark.parametrize(
    "loss",
    [
        lambda out: out["first"].square().sum(),
        lambda out: out["others"][1],
        lambda out: out["first"].sum() * out["others"][0].exp().mean(),
    ],
    ids=["one output", "a scalar", "two outputs"],
)
def test_outputs_of_any_structure_have_eager_gradients(loss):
    model, eager = several(), several()
    returned = port(model)(X, extra={"shift": SHIFT})

    loss(returned).backward()
    loss(eager(X, extra={"shift": SHIFT})).backward()

    assert list(returned) == ["first", "best", "others"]
    assert not returned["best"].requires_grad
    assert_same_gradients(model, eager)


def test_inputs_get_their_gradient():
    model, eager = several(), several()
    x, same_x = X.clone().requires_grad_(), X.clone().requires_grad_()
    shift, same_shift = SHIFT.clone().requires_grad_(), SHIFT.clone().requires_grad_()

    port(model)(x * 2, extra={"shift": shift})["first"].square().sum().backward()
    eager(same_x * 2, extra={"shift": same_shift})["first"].square().sum().backward()

    assert torch.equal(x.grad, same_x.grad)
    assert torch.equal(shift.grad, same_shift.grad)
    assert_same_gradients(model, eager)


def test_gradients_add_up_over_calls_before_a_step(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)
    for call, trained in ((ported, model), (eager, eager)):
        for x, y in batches[:3]:
            (F.cross_entropy(call(x), y) / 3).backward()
        torch.optim.SGD(trained.parameters(), lr=0.1).step()

    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in eager.state_dict().items())


def test_two_calls_before_one_backward(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)
    for call in (ported, eager):
        first, second = call(batches[0][0]), call(batches[1][0])
        (F.cross_entropy(first, batches[0][1]) + F.cross_entropy(second, batches[1][1])).backward()

    assert_same_gradients(model, eager)
    assert torch.equal(model[1].running_mean, eager[1].running_mean)


def test_a_graph_that_is_kept_is_differentiated_twice(make_model, batches):
    model, eager = make_model(), make_model()
    for call in (port(model), eager):
        loss = F.cross_entropy(call(batches[0][0]), batches[0][1])
        loss.backward(retain_graph=True)
        loss.backward()

    assert_same_gradients(model, eager)


def test_a_call_without_gradients_has_none_and_needs_no_backward_executable(make_model, batches):
    model = make_model()
    ported = port(model)

    with torch.no_grad():
        output = ported(batches[0][0])
    with torch.inference_mode():
        ported(batches[0][0])

    assert not output.requires_grad
    assert [record.name for record in ported.report().executors] == ["forward"]


def test_statistics_change_once_a_call_with_or_without_a_backward_pass(make_model, batches):
    model, eager = make_model(), make_model()
    for call in (port(model), eager):
        with torch.no_grad():
            call(batches[0][0])
        F.cross_entropy(call(batches[1][0]), batches[1][1]).backward()
        call(batches[2][0])

    for name, buffer in eager.named_buffers():
        assert torch.equal(dict(model.named_buffers())[name], buffer), name


def test_the_backward_pass_starts_from_the_buffers_that_forward_started_from(batches):
    class Running(nn.Module):
        """Scales by a statistic that each call moves far."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("scale", torch.ones(()))

        def forward(self, x):
            self.scale.mul_(0.5)
            return self.layer(x) * self.scale

    torch.manual_seed(0)
    model = Running()
    eager = copy.deepcopy(model)

    losses = train_on_host(model, port(model), batches)

    assert losses == train_on_host(eager, eager, batches)


class Averaging(nn.Module):
    """Shifts by an average of its outputs, which each call moves, in whatever mode it is."""

    def __init__(self, kind):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        if kind == "buffer":
            self.register_buffer("average", torch.zeros(3))
        else:
            self.average = nn.Parameter(torch.zeros(3), requires_grad=kind == "trained parameter")

    def forward(self, x):
        output = self.layer(x) + self.average.detach()
        with torch.no_grad():
            self.average.mul_(0.9).add_(output.mean(0) * 0.1)
        return output


@pytest.mark.parametrize("kind", ["buffer", "frozen parameter", "trained parameter"])
@pytest.mark.parametrize("is_training", [True, False])
def test_what_forward_writes_to_is_written_in_each_mode(kind, is_training, batches):
    torch.manual_seed(0)
    model = Averaging(kind).train(is_training)
    eager = copy.deepcopy(model)

    losses = train_on_host(model, port(model), batches)

    assert losses == train_on_host(eager, eager, batches)
    assert torch.equal(model.average, eager.average)


def test_eval_mode_is_the_models_and_changes_nothing(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)
    train_on_host(model, ported, batches[:3])
    train_on_host(eager, eager, batches[:3])
    before = copy.deepcopy(model.state_dict())

    ported.eval()
    eager.eval()
    output = ported(batches[3][0])

    assert torch.equal(output, eager(batches[3][0]))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    ported.train()
    eager.train()
    assert train_on_host(model, ported, batches[3:6]) == train_on_host(eager, eager, batches[3:6])


@pytest.mark.filterwarnings("ignore::porting.diagnostics.PortingWarning")
def test_dropout_drops_the_same_in_both_passes():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1, bias=False))
    output = port(model)(torch.ones(2, 4))

    output.sum().backward()

    # the sum of w * dL/dw is the output itself, if the units that count are the same
    assert torch.allclose((model[2].weight.grad * model[2].weight).sum(), output.sum(), atol=1e-5)


@pytest.mark.filterwarnings("ignore::porting.diagnostics.PortingWarning")
def test_dropout_and_the_loop_draw_the_numbers_of_eager_training(batches):
    def train_with_noise(call, model):
        torch.manual_seed(4)
        losses = []
        for x, y in batches:
            value = F.cross_entropy(call(x + torch.randn_like(x)), y)
            value.backward()
            with torch.no_grad():
                model[0].weight -= 0.1 * model[0].weight.grad
            losses.append(value.item())
        return losses

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    eager = copy.deepcopy(model)

    assert train_with_noise(port(model), model) == train_with_noise(eager, eager)


def test_nothing_is_said_of_random_numbers_where_none_are_drawn():
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0), nn.Dropout(0.0))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        port(model)(torch.rand(3, 2, 4)).sum().backward()


@pytest.mark.filterwarnings("ignore::porting.diagnostics.PortingWarning")
def test_dropout_drops_others_in_each_call():
    ported = port(nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 64)))

    assert not torch.equal(ported(torch.ones(2, 64)), ported(torch.ones(2, 64)))


def test_frozen_parameters_get_no_gradient_and_thawed_ones_do(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)
    for call in (ported, eager):
        (model if call is ported else eager)[0].requires_grad_(False)
        F.cross_entropy(call(batches[0][0]), batches[0][1]).backward()
    assert_same_gradients(model, eager)
    for call in (ported, eager):
        (model if call is ported else eager)[0].requires_grad_(True)
        F.cross_entropy(call(batches[1][0]), batches[1][1]).backward()

    assert_same_gradients(model, eager)


def test_a_step_that_is_skipped_for_an_infinite_gradient_leaves_the_next_one_right(make_model, batches):
    model, eager = make_model(), make_model()
    for call, trained in ((port(model), model), (eager, eager)):
        (call(batches[0][0]).sum() * float("inf")).backward()
        trained.zero_grad()
        F.cross_entropy(call(batches[1][0]), batches[1][1]).backward()

    assert_same_gradients(model, eager)


def test_weights_that_change_between_forward_and_backward_are_torchs_error(make_model, batches):
    model = make_model()
    loss = port(model)(batches[0][0]).sum()
    with torch.no_grad():
        model[0].weight.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_batch_of_another_shape_is_refused_and_the_training_goes_on(make_model, batches):
    ported = port(make_model())
    ported(batches[0][0])

    with pytest.raises(BatchError, match="B001"):
        ported(batches[0][0][:3])
    F.cross_entropy(ported(batches[0][0]), batches[0][1]).backward()


def test_an_interrupt_leaves_everything_usable(make_model, batches, monkeypatch):
    model, eager = make_model(), make_model()
    ported = port(model)
    train_on_host(model, ported, batches[:1])
    train_on_host(eager, eager, batches[:1])

    loss = F.cross_entropy(ported(batches[1][0]), batches[1][1])
    with monkeypatch.context() as patched:
        patched.setattr("porting.api.gradients.torch.Tensor.sum", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
    F.cross_entropy(eager(batches[1][0]), batches[1][1])

    assert train_on_host(model, ported, batches[2:5]) == train_on_host(eager, eager, batches[2:5])


def interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt


def test_it_is_a_module_with_the_models_own_parts(make_model):
    model = make_model()
    ported = port(model)

    assert list(ported.state_dict()) == list(model.state_dict())
    assert all(one is other for one, other in zip(ported.parameters(), model.parameters()))
    with pytest.raises(DeviceError, match="D003"):
        ported.half()
    with pytest.raises(DeviceError, match="copied or pickled"):
        copy.deepcopy(ported)


def test_a_step_sends_the_weights_once_to_each_of_the_two_executables():
    model = nn.Linear(4, 3)
    ported = port(model)
    batch = torch.ones(2, 4), torch.tensor([0, 1])
    train_on_host(model, ported, [batch] * 2)
    before = {record.name: record.bytes_to_device for record in ported.report().executors}

    train_on_host(model, ported, [batch])

    sent = {record.name: record.bytes_to_device - before[record.name] for record in ported.report().executors}
    weights, x, cotangent = 4 * (3 * 4 + 3), 4 * 2 * 4, 4 * 2 * 3
    assert sent == {"forward": weights + x, "backward": weights + x + cotangent}


def test_weights_that_are_loaded_reach_the_device(make_model, batches):
    model, other = make_model(), make_model(seed=4)
    ported = port(model)
    ported(batches[0][0])

    ported.load_state_dict(OrderedDict(other.state_dict()))

    assert torch.equal(ported(batches[0][0]), other(batches[0][0]))


def test_the_report_has_both_executables(make_model, batches):
    model = make_model()
    ported = port(model)
    train_on_host(model, ported, batches[:2])

    report = ported.report()

    assert [(record.name, record.num_calls) for record in report.executors] == [("forward", 2), ("backward", 2)]
    assert "on the host" in str(report)


def test_what_belongs_to_a_port_that_makes_the_steps_is_refused(make_model):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for settings in (
        {"loss": nn.CrossEntropyLoss()},
        {"optimizer": optimizer},
        {"max_grad_norm": 1.0},
        {"options": PortOptions(accumulation=2)},
        {"options": PortOptions(device_iterations=2, output_mode="all")},
        {"options": PortOptions(replicas=2)},
    ):
        with pytest.raises(OptionError, match="P002"):
            port(model, **settings)
    with pytest.raises(OptionError, match="use 'device'"):
        to_ipu(model, loop="hosts")


def test_nothing_is_said_of_a_training_that_is_as_it_should_be(make_model, batches):
    model = make_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_on_host(model, port(model), batches[:3])


def test_a_call_is_forgotten_with_its_output(make_model, batches):
    ported = port(make_model())
    output = weakref.ref(ported(batches[0][0]))

    assert output() is None


def write_to_data(parameters):
    """An optimizer of the kind that torch's counters of writes do not see."""

    class WritesToData(torch.optim.SGD):
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.data.sub_(parameter.grad, alpha=0.1)

    return WritesToData(parameters, lr=0.1)


UNSEEN = {"fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True), "data": write_to_data}


@pytest.mark.parametrize("make_optimizer", UNSEEN.values(), ids=UNSEEN)
def test_steps_that_torch_does_not_count_reach_the_device(make_optimizer, make_model, batches):
    model, eager = make_model(), make_model()

    losses = train_on_host(model, port(model), batches, make_optimizer)

    assert losses == train_on_host(eager, eager, batches, make_optimizer)


def test_weights_that_are_exchanged_for_an_evaluation_by_data_reach_the_device(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)
    (x, _y) = batches[0]
    before = [parameter.data.clone() for parameter in model.parameters()]

    ported(x).sum().backward()
    for parameter in model.parameters():
        parameter.data.zero_()
    ported.eval()
    with torch.no_grad():
        zeros = ported(x)
    for parameter, values in zip(model.parameters(), before):
        parameter.data.copy_(values)
    ported.train()

    assert not zeros.any()
    assert torch.equal(ported(x), eager.train()(x))


def test_a_model_that_nobody_holds_is_gone():
    ported = to_ipu(nn.Linear(4, 3), loop="host", device="sim")
    ported(torch.randn(2, 4)).sum().backward()
    gone = weakref.ref(ported)

    del ported
    gc.collect()

    assert gone() is None


# -- statistics computed anew


def assert_same_state(model, eager):
    for name, tensor in eager.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("is_compiled", [True, False])
def test_statistics_are_computed_anew_as_in_eager(is_compiled, make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)
    inputs = [x for x, _y in batches]
    if is_compiled:
        train_on_host(model, ported, batches[:3])
        train_on_host(eager, eager, batches[:3])

    torch.optim.swa_utils.update_bn(inputs, ported)
    torch.optim.swa_utils.update_bn(inputs, eager)

    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)
    assert torch.equal(model[1].num_batches_tracked, eager[1].num_batches_tracked)
    train_on_host(model, ported, batches[:1])
    train_on_host(eager, eager, batches[:1])
    torch.testing.assert_close(model[1].running_mean, eager[1].running_mean)


def test_a_cumulative_average_trains_as_in_eager(make_model, batches):
    model, eager = make_model(), make_model()
    model[1].momentum = eager[1].momentum = None

    losses = train_on_host(model, port(model), batches)

    assert losses == train_on_host(eager, eager, batches)
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)


def test_another_momentum_is_followed(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)

    for momentum, (x, _y) in zip([0.1, 0.5, 0.1], batches):
        model[1].momentum = eager[1].momentum = momentum
        ported(x)
        eager(x)

    assert_same_state(model, eager)


def test_tensors_that_are_exchanged_are_followed(make_model, batches):
    model, eager = make_model(), make_model()
    ported = port(model)

    for trained, call in ((model, ported), (eager, eager)):
        train_on_host(trained, call, batches[:2])
        trained[1].running_mean = torch.zeros(8)
        trained[0].weight = nn.Parameter(torch.ones(8, 4) / 4)
        train_on_host(trained, call, batches[2:4])

    assert_same_state(model, eager)
    (finding,) = [finding for finding in ported.report().findings if finding.code == "D005"]
    assert "compiled anew" in finding.message


# -- outputs are never stale


def test_an_average_of_the_weights_in_another_port_is_that_of_eager(make_model, batches):
    outputs = []
    for is_ported in (True, False):
        model, average = make_model(), make_model(1)
        call, call_average = (port(model), port(average)) if is_ported else (model, average)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        for x, y in batches[:6]:
            optimizer.zero_grad()
            F.cross_entropy(call(x), y).backward()
            optimizer.step()
            for mean, new in zip(average.parameters(), model.parameters()):
                mean.data.copy_(0.9 * mean.data + 0.1 * new.data)
            with torch.no_grad():
                outputs.append(call_average(x))

    assert all(map(torch.equal, outputs[:6], outputs[6:]))


def test_two_ports_that_share_a_module_train_it_as_in_eager(batches):
    results = []
    for is_ported in (True, False):
        torch.manual_seed(0)
        trunk = nn.Linear(4, 8)
        models = [nn.Sequential(trunk, nn.Linear(8, 3)), nn.Sequential(trunk, nn.Tanh(), nn.Linear(8, 3))]
        calls = [port(model) for model in models] if is_ported else models
        for batch in batches[:4]:
            results += [train_on_host(model, call, [batch]) for model, call in zip(models, calls)]

    assert results[:8] == results[8:]


def test_a_batch_of_another_size_is_told_that_both_can_be_kept(make_model, batches):
    ported = port(make_model())
    ported(batches[0][0])

    with pytest.raises(BatchError) as caught:
        ported(batches[0][0][:3])

    (help,) = [help for help in caught.value.finding.help if "max_executables" in help]
    assert help == "or keep an executable for each of several shapes: `PortOptions(max_executables=2)`"


def test_each_of_several_instances_is_told_that_a_loop_on_the_host_joins_no_gradients(make_model, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.warns(PortingWarning, match="each of the 2 instances trains by itself") as caught:
        ported = to_ipu(make_model(), loop="host")

    assert [one.message.finding.code for one in caught] == ["D017"]
    assert ported.report().findings[-1].place.file == __file__
