"""`DeviceCalls`: a model stays itself, and the outermost of its calls run on the device."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import DeviceError, OptionError, PortingWarning
from porting.integrations import DeviceCalls


class Net(nn.Module):
    """Two parts that a loop may call one by one, a loss, and a way to call them all."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.loss = nn.CrossEntropyLoss(weight=torch.ones(3))

    def forward(self, x, *, scale: bool = False):
        h = self.head(self.body(x))
        return {"logits": h * 2 if scale else h}


def make_net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def model():
    return make_net()


@pytest.fixture
def calls(model):
    return DeviceCalls(model, device="sim")


def make_batches(*rows):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator)) for n in rows]


def train(model, batches, forward):
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = model.loss(forward(model, x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


FORWARDS = {
    "the whole": lambda model, x: model(x)["logits"],
    "parts": lambda model, x: model.head(model.body(x)),
    "both": lambda model, x: model(x, scale=True)["logits"] + model.head(model.body(x)),
    "layers": lambda model, x: model.head(F.relu(model.body[1](model.body[0](x)))),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_a_loop_that_calls_parts_or_the_whole_is_eager_training(forward, model, calls):
    batches = make_batches(*[6] * 20)

    with calls.active():
        losses = train(model, batches, forward)

    assert losses == train(make_net(), batches, forward)


def test_only_the_outermost_call_is_a_graph_and_losses_stay_on_the_host(model, calls):
    ((x, y),) = make_batches(6)

    with calls.active():
        model.loss(model(x)["logits"], y).backward()

    assert calls.list_device_modules() == ["Net"]
    assert [record.num_calls for record in calls.reports()[0].executors] == [1, 1]


def test_a_last_batch_that_is_smaller_is_compiled_for_and_said(model, calls):
    batches = make_batches(6, 6, 2, 6, 6, 2)

    with calls.active():
        losses = train(model, batches, FORWARDS["the whole"])

    assert losses == train(make_net(), batches, FORWARDS["the whole"])
    [finding] = [finding for finding in calls.reports()[0].findings if finding.code == "B001"]
    assert "executable 2 of 32" in finding.message
    assert finding.notes[1] == "this call:    float32[2, 4]"


def test_of_too_many_shapes_the_oldest_is_dropped_with_the_remedy(model):
    calls = DeviceCalls(model, device="sim", options=PortOptions(max_executables=2))

    with calls.active(), pytest.warns(PortingWarning, match="`max_executables` is 2") as warned:
        outputs = [model(x)["logits"] for x, _y in make_batches(6, 5, 4)]

    plain = [make_net()(x)["logits"] for x, _y in make_batches(6, 5, 4)]
    assert all(torch.equal(output, expected) for output, expected in zip(outputs, plain))
    [warning] = warned
    assert "pad dimension 0 of argument 0 to few lengths, such as 4, 6" in str(warning.message)
    assert warning.filename == __file__


def test_outside_of_the_context_calls_are_on_the_host(model, calls):
    (x, _y), (other, _label) = make_batches(6, 5)
    with calls.active():
        model(x)

    model(other)

    assert "forward" not in vars(model)
    assert [record.num_calls for record in calls.reports()[0].executors] == [1]


def test_an_error_of_the_model_leaves_everything_usable(model, calls):
    ((x, y),) = make_batches(6)

    with pytest.raises(RuntimeError, match="mat1 and mat2"), calls.active():
        model(x[:, :3])

    with calls.active():
        model.loss(model(x)["logits"], y).backward()
    assert model.head.weight.grad.any()


def test_an_interrupt_leaves_everything_usable(model, calls, monkeypatch):
    ((x, y),) = make_batches(6)

    def interrupt(_input):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model.body[2], "forward", interrupt)
        with pytest.raises(KeyboardInterrupt), calls.active():
            model(x)

    with calls.active():
        loss = model.loss(model(x)["logits"], y)
    assert loss.item() == make_net().loss(make_net()(x)["logits"], y).item()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_is_a_plain_module_of_its_own(copied, model, calls):
    ((x, _y),) = make_batches(6)
    calls.install()

    other = copied(model)
    with torch.no_grad():
        other.head.weight.zero_()

    assert torch.equal(other(x)["logits"], other.head.bias.expand(6, 3))
    assert model(x)["logits"].std() > 0
    assert [record.num_calls for record in calls.reports()[0].executors] == [1]


def test_a_trainer_reads_the_signature_of_forward(model, calls):
    before = inspect.signature(model.forward)

    with calls.active():
        assert inspect.signature(model.forward) == before


def test_forward_hooks_run_once_and_on_the_host(model, calls):
    ((x, _y),) = make_batches(6)
    seen = []
    model.register_forward_hook(lambda _module, _args, output: seen.append(output["logits"].sum().item()))

    with calls.active():
        output = model(x)

    assert seen == [output["logits"].sum().item()]


def test_a_model_may_list_its_parameters_in_its_own_way():
    class Meta(nn.Linear):
        def parameters(self, recurse=True):
            return [self.weight, self.bias]

    calls = DeviceCalls(Meta(4, 3), device="sim")
    with calls.active():
        calls.model(torch.ones(2, 4))

    assert calls.list_device_modules() == ["Meta"]


def test_frozen_parts_get_no_gradient_and_thawed_ones_do(model, calls):
    ((x, _y),) = make_batches(6)
    model.body.requires_grad_(False)
    with calls.active():
        model(x)["logits"].sum().backward()
        frozen = model.body[0].weight.grad
        model.body.requires_grad_(True)
        model(x)["logits"].square().sum().backward()

    assert frozen is None
    assert model.body[0].weight.grad.any()


def test_part_of_a_model_in_eval_mode_stays_in_it(model, calls):
    ((x, _y),) = make_batches(6)
    model.body.eval()
    before = model.body[1].running_mean.clone()

    with calls.active():
        model(x)

    assert torch.equal(model.body[1].running_mean, before)
    assert (model.training, model.body.training) == (True, False)


def test_chosen_modules_run_on_the_device_and_the_others_do_not(model):
    calls = DeviceCalls(model, device="sim", modules=["body"])
    ((x, _y),) = make_batches(6)

    with calls.active():
        model(x)

    assert calls.list_device_modules() == ["body"]


def test_a_module_that_does_not_exist_is_named(model):
    with pytest.raises(OptionError, match="'tail'") as caught:
        DeviceCalls(model, modules=["tail"])

    assert caught.value.code == "P002"


def test_calls_of_two_trainers_do_not_meet(model):
    first, second = DeviceCalls(model, device="sim"), DeviceCalls(model, device="sim")
    ((x, _y),) = make_batches(6)

    with first.active(), second.active():
        model(x)
    model(x)

    assert (first.list_device_modules(), second.list_device_modules()) == ([], ["Net"])


def test_destroy_drops_what_was_compiled(model, calls):
    calls.install()
    model(make_batches(6)[0][0])

    calls.destroy()

    assert calls.reports() == []
    assert "forward" not in vars(model)


def test_options_are_the_ports(model):
    calls = DeviceCalls(model, device="sim", options=PortOptions(precision="bfloat16"))

    with calls.active():
        model(make_batches(6)[0][0])

    assert "bfloat16" in str(calls.reports()[0])


WRAPPED = {
    "torch.compile": lambda model: torch.compile(model, backend="eager"),
    "DataParallel": nn.DataParallel,
    "to_ipu": lambda model: to_ipu(model, loop="host", device="sim"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_model_that_is_wrapped_is_refused_by_name(name, model):
    with pytest.raises(DeviceError, match=name) as caught:
        DeviceCalls(WRAPPED[name](model))

    assert caught.value.code == "D003"


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_statistics_are_computed_anew_through_calls_of_any_part(forward, model, calls):
    plain, batches = make_net(), make_batches(8, 8, 6)
    norms = model.body[1], plain.body[1]

    with torch.no_grad(), calls.active():
        for norm, own in zip(norms, (model, plain)):
            norm.reset_running_stats()
            norm.momentum = None
            for x, _y in batches:
                forward(own, x)

    torch.testing.assert_close(norms[0].running_mean, norms[1].running_mean)
    torch.testing.assert_close(norms[0].running_var, norms[1].running_var)


def test_a_forward_of_the_modules_own_is_kept(model, calls):
    head, own = model.head, model.head.forward
    head.forward = lambda x: own(x) + 1
    before = head.forward

    with calls.active():
        output = model(torch.ones(3, 4))["logits"]

    assert head.forward is before
    assert torch.equal(output, make_net()(torch.ones(3, 4))["logits"] + 1)


def test_a_change_is_told_by_the_users_names_with_a_help_that_works():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0))
    calls, x = DeviceCalls(model, device="sim"), torch.randn(2, 4)
    calls.install()
    model(x)
    model[1] = nn.Tanh()

    with pytest.warns(UserWarning, match=r"a module was exchanged .*\(`1`\)") as told:
        model(x)
    calls.destroy()
    calls.install()
    followed = model(x)
    calls.remove()

    assert "`calls.destroy()`, then `calls.install()`" in str(told[0].message)
    assert torch.equal(followed, model(x))
