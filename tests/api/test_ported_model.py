from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections import namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from porting import PortOptions, to_ipu
from porting.adapters import LossTerm, load_checkpoint, save_checkpoint
from porting.diagnostics import CheckpointError, DeviceError, PortingError


@pytest.fixture
def ported(make_model):
    model = make_model()
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


class Recorded(nn.Module):
    """Remembers with what it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x, scale=1.0, *, shift=None):
        out = self.body(x) * scale
        return out if shift is None else out + shift


# -- calls


def test_a_call_returns_output_and_loss_and_makes_the_step(ported, make_model, batches, same):
    x, y = batches[0]

    output, loss = ported(x, y)

    plain = make_model()
    same(output, plain(x).detach())
    same(loss, F.cross_entropy(plain.train()(x), y).detach())
    assert not torch.equal(ported.state_dict()["3.weight"], plain.state_dict()["3.weight"])


def test_forward_is_a_call_and_not_the_hosts_forward(ported, batches):
    ported.forward(*batches[0])

    assert ported.report().num_training_calls == 1


@pytest.mark.parametrize(
    ("label", "call"),
    [
        (-1, lambda ported, x, y: ported(x, y)),
        (1, lambda ported, x, y: ported(x, y)),
        ("target", lambda ported, x, y: ported(x, target=y)),
        ("target", lambda ported, x, y: ported(target=y, x=x)),
        (-1, lambda ported, x, y: ported(x, anything=y)),
        (0, lambda ported, x, y: ported(y, x)),
        (-1, lambda ported, x, y: ported(x, 1.0, y)),
        (-1, lambda ported, x, y: ported(x, y, shift=torch.zeros(6, 3))),
    ],
)
def test_the_label_is_found_by_position_or_name(label, call, batches, same):
    model = Recorded()
    x, y = batches[0]
    expected = F.cross_entropy(model(x), y).detach()
    ported = to_ipu(model, nn.CrossEntropyLoss(), label=label)

    _, loss = call(ported, x, y)

    same(loss, expected)


def test_labels_are_transformed_before_the_loss(make_model, batches, same):
    model = make_model()
    x, y = batches[0]
    expected = F.cross_entropy(model(x), y).detach()
    ported = to_ipu(model, nn.CrossEntropyLoss(), label_transform=lambda label: label.long().squeeze(1))

    _, loss = ported(x, y.float().unsqueeze(1))

    same(loss, expected)


def test_several_labels_by_name_feed_several_losses(batches, same):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.kind, self.size = nn.Linear(4, 3), nn.Linear(4, 1)

        def forward(self, x):
            return {"kind": self.kind(x), "size": self.size(x)}

    model = Two()
    x, y = batches[0]
    size = torch.randn(6, 1)
    expected = F.cross_entropy(model(x)["kind"], y) + 2.0 * F.mse_loss(model(x)["size"], size)
    losses = {"kind": nn.CrossEntropyLoss(), "size": LossTerm(nn.MSELoss(), output="size", label="size", weight=2.0)}
    ported = to_ipu(model, losses, label=("kind", "size"), returns=("output", "loss", "losses"))

    output, loss, terms = ported(x, kind=y, size=size)

    same(loss, expected.detach())
    same(terms["kind"] + terms["size"], loss)
    assert list(output) == ["kind", "size"]


def test_three_values_come_back_when_asked_for(make_model, batches, same):
    x, y = batches[0]
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), returns=("output", "labels", "loss"))

    output, labels, loss = ported(x, y)

    assert output.shape == (6, 3)
    assert labels.tolist() == y.tolist()
    same(ported.loss_of((output, labels, loss)), loss)


def test_metrics_come_back_and_do_not_train(make_model, batches, train_plainly, same):
    def accuracy(output, label):
        return (output.argmax(-1) == label).float().mean()

    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    ported = to_ipu(
        model,
        nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        metrics={"accuracy": accuracy, "error": lambda output, label: F.mse_loss(output, F.one_hot(label, 3).float())},
    )

    results = [ported(*batch) for batch in batches]

    same([loss.item() for _, loss, _ in results], expected)
    (output, _, metrics), (_, y) = results[0], batches[0]
    assert metrics["accuracy"].item() == pytest.approx(accuracy(output, y).item())
    assert set(metrics) == {"accuracy", "error"}


def test_a_model_that_returns_its_own_loss_needs_none(batches, same):
    Output = namedtuple("Output", ["logits", "loss"])

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x, label=None):
            logits = self.body(x)
            return logits if label is None else Output(logits, F.cross_entropy(logits, label))

    model = WithLoss()
    x, y = batches[0]
    expected = model(x, y).loss.detach()
    ported = to_ipu(model)

    returned = ported(x, label=y)

    assert type(returned) is Output
    same(returned.loss, expected)
    same(ported.loss_of(returned), expected)
    same(ported.inference()(x), model(x).detach())


def test_a_loss_of_several_elements_is_reduced_when_asked(make_model, batches, same):
    x, y = batches[0]
    model = make_model()
    expected = F.cross_entropy(model(x), y, reduction="sum").detach()
    ported = to_ipu(model, nn.CrossEntropyLoss(reduction="none"), reduction="sum")

    same(ported(x, y)[1], expected)


@pytest.mark.parametrize("num_calls_before", [0, 1])
def test_training_without_labels_is_an_error_that_names_inference(num_calls_before, ported, batches):
    for batch in batches[:num_calls_before]:
        ported(*batch)

    with pytest.raises(DeviceError) as caught:
        ported(batches[0][0])

    assert caught.value.code == "D006"
    assert any("ported.inference()" in line for line in caught.value.finding.help)


def test_statistics_are_computed_anew_on_the_host_as_the_refusal_says(make_model, batches):
    plain = make_model()
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), device="sim")
    inputs = [x for x, _y in batches[:3]]

    with pytest.raises(DeviceError, match=r"update_bn\(loader, ported.model\)"):
        torch.optim.swa_utils.update_bn(inputs, ported)
    ported.model[1].momentum = 0.1
    torch.optim.swa_utils.update_bn(inputs, ported.model)
    torch.optim.swa_utils.update_bn(inputs, plain)

    assert torch.equal(ported.inference()(inputs[0]), plain.eval()(inputs[0]))


def test_two_ports_with_the_same_seed_draw_the_same_random_numbers(make_model, batches, train_ported):
    def port():
        return to_ipu(make_model().append(nn.Dropout()), nn.CrossEntropyLoss(), options=PortOptions(seed=7))

    torch.manual_seed(1)
    first = train_ported(port(), batches)
    torch.manual_seed(2)
    second = train_ported(port(), batches)

    assert first == second


def test_the_generator_of_the_host_is_left_alone(make_model, batches, train_ported):
    before = torch.get_rng_state()

    ported = to_ipu(make_model().append(nn.Dropout()), nn.CrossEntropyLoss(), options=PortOptions(seed=7))
    train_ported(ported, batches)
    ported.inference()(batches[0][0])

    assert torch.equal(torch.get_rng_state(), before)


# -- weights


def test_the_models_own_module_has_the_trained_weights(ported, batches, train_ported, same):
    weight = ported.model[3].weight
    before = weight.detach().clone()

    train_ported(ported, batches[:2])

    assert not torch.equal(weight, before)
    same(weight.detach(), ported.state_dict()["3.weight"])
    same(next(ported.parameters()).detach(), ported.state_dict()["0.weight"])


def test_the_state_is_plain_and_a_snapshot(ported, batches):
    ported(*batches[0])
    state = ported.state_dict()
    before = state["3.weight"].clone()

    ported(*batches[1])

    assert {type(tensor) for tensor in state.values()} == {torch.Tensor}
    assert not any(tensor.requires_grad for tensor in state.values())
    assert torch.equal(state["3.weight"], before)


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_saved_state_loads_in_a_process_without_this_package(ported, batches, tmp_path):
    ported(*batches[0])
    torch.save(ported.state_dict(), tmp_path / "weights.pt")
    program = f"""
import sys
sys.modules["porting"] = sys.modules["poptorch"] = None
import torch
from torch import nn
from torch.nn.utils import prune
model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
print(model.load_state_dict(torch.load({str(tmp_path / "weights.pt")!r}, weights_only=True)))
print(float(model[3].weight.double().sum()))
"""

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)

    assert run.stdout.splitlines() == [
        "<All keys matched successfully>",
        str(float(ported.state_dict()["3.weight"].double().sum())),
    ], run.stderr


def test_a_checkpoint_of_the_ported_model_resumes_training(ported, make_model, batches, train_ported, tmp_path, same):
    train_ported(ported, batches[:5])
    save_checkpoint(tmp_path / "c.pt", model=ported, optimizer=ported.optimizer_state_dict(), step=5)
    expected = train_ported(ported, batches[5:])

    checkpoint = load_checkpoint(tmp_path / "c.pt")
    model = make_model(seed=9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.load_state_dict(checkpoint.optimizer)
    resumed = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    resumed.load_state_dict(checkpoint)

    same(train_ported(resumed, batches[5:]), expected)


@pytest.mark.parametrize("when", ["before compiling", "while attached", "while detached"])
def test_loaded_weights_reach_the_device(when, ported, make_model, batches, same):
    if when != "before compiling":
        ported(*batches[0])
    if when == "while detached":
        ported.detach()

    keys = ported.load_state_dict(make_model(seed=3).state_dict())
    _, loss = ported(*batches[1])

    x, y = batches[1]
    same(loss, F.cross_entropy(make_model(seed=3)(x), y).detach())
    assert str(keys) == "<All keys matched successfully>"


def test_loading_keeps_the_state_of_the_optimizer(make_model, batches, train_ported):
    model = make_model()
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters()))
    train_ported(ported, batches[:3])

    ported.load_state_dict(make_model().state_dict())
    ported(*batches[3])

    assert ported.optimizer_state_dict()["state"][0]["step"] == 4.0


def test_loading_weights_of_another_model_changes_nothing(ported, batches, same):
    ported(*batches[0])
    before = ported.state_dict()
    foreign = {**before, "0.weight": torch.zeros(2, 2), "surprise": torch.zeros(1)}
    del foreign["3.bias"]

    with pytest.raises(CheckpointError) as caught:
        ported.load_state_dict(foreign)

    assert caught.value.code == "K002"
    assert [note.split(":")[0] for note in caught.value.finding.notes] == [
        "missing",
        "unexpected",
        "shape of `0.weight`",
    ]
    same(ported.state_dict(), before)


def test_loading_not_strictly_returns_what_did_not_fit(ported, batches, same):
    ported(*batches[0])
    part = {"3.bias": torch.full((3,), 2.0), "surprise": torch.zeros(1)}

    keys = ported.load_state_dict(part, strict=False)

    assert keys.unexpected_keys == ["surprise"]
    assert "0.weight" in keys.missing_keys
    same(ported.state_dict()["3.bias"], part["3.bias"])


def test_weights_changed_in_place_on_the_host_are_sent_on_demand(ported, batches):
    ported(*batches[0])
    with torch.no_grad():
        ported.model[3].weight.zero_()
        ported.model[3].bias.zero_()

    ported.copy_weights_to_device()
    output, _ = ported(*batches[1])

    assert not output.any()


def test_applying_a_function_to_all_modules_reaches_the_device(ported, batches):
    def zero(module):
        for parameter in module.parameters(recurse=False):
            nn.init.zeros_(parameter)

    ported(*batches[0])

    result = ported.apply(zero)
    output, _ = ported(*batches[1])

    assert result is ported
    assert not output.any()


def test_a_deep_copy_of_the_model_is_independent_and_plain_in_a_file(ported, batches, tmp_path):
    ported(*batches[0])
    best = copy.deepcopy(ported.model)
    kept = best[3].weight.detach().clone()

    ported(*batches[1])
    torch.save(best, tmp_path / "model.pt")

    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(best[3].weight, kept)
    assert torch.equal(loaded[3].weight, kept)
    assert {type(parameter) for parameter in loaded.parameters()} == {nn.Parameter}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_copying_or_pickling_the_ported_model_says_what_to_save_instead(copied, ported):
    with pytest.raises(DeviceError) as caught:
        copied(ported)

    assert caught.value.code == "D003"
    assert any("ported.state_dict()" in line for line in caught.value.finding.help)


# -- the rest of the model


@pytest.mark.parametrize("loop", ["device", "host"])
def test_an_attribute_that_is_set_on_a_port_is_the_models(loop):
    model = torch.nn.Linear(2, 2)
    model.scale = 1.0
    port = to_ipu(model, *([] if loop == "host" else [torch.nn.MSELoss()]), loop=loop, device="sim")

    port.scale, port.own = 2.0, 3.0
    port.eval()

    assert (model.scale, port.scale, port.own) == (2.0, 2.0, 3.0)
    assert not hasattr(model, "own")
    assert not model.training


def test_attributes_and_methods_are_those_of_the_model(ported, make_model):
    assert [name for name, _ in ported.named_parameters()] == [name for name, _ in make_model().named_parameters()]
    assert ported.get_submodule("3").out_features == 3
    with pytest.raises(AttributeError, match="nothing_like_this"):
        ported.nothing_like_this  # noqa: B018


def test_the_class_of_the_model_is_not_edited(make_model, batches):
    before = dict(vars(nn.Sequential))
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    ported(*batches[0])

    assert dict(vars(nn.Sequential)) == before
    assert type(ported.model) is nn.Sequential


def test_the_model_runs_on_the_host_with_the_trained_weights(ported, batches, train_ported, same):
    train_ported(ported, batches[:3])
    x, _ = batches[0]

    ported.model.eval()
    on_the_host = ported.model(x)

    same(on_the_host.detach(), ported.inference()(x))


def test_the_representation_names_device_and_model(ported):
    assert repr(ported).startswith("PortedModel(CPU simulator of an IPU):\nSequential(")


def test_freezing_before_compiling_reaches_the_device(ported, make_model, batches):
    assert ported.requires_grad_(False) is ported
    ported.model[3].requires_grad_(True)

    ported(*batches[0])

    assert torch.equal(ported.state_dict()["0.weight"], make_model().state_dict()["0.weight"])
    assert not torch.equal(ported.state_dict()["3.weight"], make_model().state_dict()["3.weight"])


def test_freezing_after_compiling_says_that_it_comes_too_late(ported, batches):
    ported(*batches[0])

    with pytest.warns(UserWarning, match=r"D005.*`requires_grad` changed after the step was compiled"):
        result = ported.requires_grad_(False)

    assert result is ported


def test_a_model_that_is_ported_while_its_optimizer_is_anothers_is_refused(make_model):
    stranger = torch.optim.SGD(make_model().parameters(), lr=0.1)

    with pytest.raises(PortingError, match="O003"):
        to_ipu(make_model(), nn.CrossEntropyLoss(), optimizer=stranger)


def test_a_weight_that_is_lost_is_an_error_that_says_what_helps(make_model, batches):
    model = make_model()
    prune.l1_unstructured(model[0], "weight", 0.5)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    ported(*batches[0])
    prune.remove(model[0], "weight")

    with pytest.warns(UserWarning, match="D005"), pytest.raises(PortingError, match=r"0.weight_orig(?s:.)*destroy\(\)"):
        ported(*batches[0])
    ported.destroy()
    _output, loss = ported(*batches[0])

    assert loss.isfinite()


def test_after_an_exchange_of_layers_the_optimizer_is_asked_for_anew(ported, batches):
    ported(*batches[0])
    ported.model[0] = copy.deepcopy(ported.model[0])
    ported.destroy()

    with pytest.raises(PortingError, match=r"O003(?s:.)*make it anew, and port again"):
        ported(*batches[0])
