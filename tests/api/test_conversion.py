from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import porting.simulator as poptorch
from porting import PortOptions, to_ipu
from porting.adapters import PortingWarning
from porting.diagnostics import (
    BatchError,
    CaptureError,
    DeviceError,
    OptionError,
    PortingError,
    UnsupportedOptimizerError,
)

ROOT = Path(__file__).parents[2]
PORT_TWICE = """
import torch
from porting import to_ipu
for _ in range(2):
    ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), device="auto")
print(ported.report().device)
"""


def run_with(program, **environment):
    """Run a program in a process of its own; None takes a variable away."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables)


# -- the device


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_without_an_ipu_auto_says_once_and_visibly_that_it_runs_on_the_simulator():
    run = run_with(PORT_TWICE, PORTING_DEVICE=None)

    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "CPU simulator of an IPU"
    assert run.stderr.count("D002") == 2, "once in the headline, once in the line that says more"
    assert run.stderr.count("no IPU was found: running on the CPU simulator") == 1


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_simulator_that_was_asked_for_needs_no_announcement():
    run = run_with(PORT_TWICE, PORTING_DEVICE="sim")

    assert run.returncode == 0, run.stderr
    assert "D002" not in run.stderr


def test_an_ipu_that_is_not_there_is_an_error_with_the_reason(make_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "poptorch", None)

    with pytest.raises(DeviceError) as caught:
        to_ipu(make_model(), nn.CrossEntropyLoss(), device="ipu")

    assert caught.value.code == "D001"
    assert caught.value.finding.notes
    assert any("device='sim'" in line for line in caught.value.finding.help)


def test_the_environment_decides_where_the_argument_does_not(make_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "poptorch", None)
    monkeypatch.setenv("PORTING_DEVICE", "ipu")

    with pytest.raises(DeviceError, match="D001"):
        to_ipu(make_model(), nn.CrossEntropyLoss())
    assert to_ipu(make_model(), nn.CrossEntropyLoss(), device="sim").report().is_simulator


def test_an_unknown_value_in_the_environment_is_an_error(make_model, monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "tpu")

    with pytest.raises(OptionError, match="P005"):
        to_ipu(make_model(), nn.CrossEntropyLoss())


# -- the example


@pytest.mark.parametrize(
    "example",
    [(torch.ones(6, 4), torch.ones(6, 3)), [torch.ones(6, 4), torch.ones(6, 3)]],
    ids=["tuple", "list"],
)
def test_an_example_compiles_at_once(example):
    ported = to_ipu(nn.Linear(4, 3), nn.MSELoss(), example=example)

    assert ported.report().executors[0].num_compilations == 1
    assert ported.report().num_training_calls == 0


def test_an_example_of_keywords_is_a_dictionary():
    ported = to_ipu(nn.Linear(4, 3), nn.MSELoss(), example={"input": torch.ones(6, 4), "label": torch.ones(6, 3)})

    ported(input=torch.ones(6, 4), label=torch.ones(6, 3))

    assert ported.report().executors[0].num_compilations == 1


def test_an_example_for_a_model_of_one_argument_is_that_tensor():
    class OwnLoss(nn.Linear):
        def forward(self, x):
            return super().forward(x).pow(2).mean()

    ported = to_ipu(OwnLoss(4, 3), example=torch.ones(6, 4))

    assert ported.report().executors[0].num_compilations == 1


# -- options


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    ],
    ids=["SGD", "Adam"],
)
@pytest.mark.parametrize(
    "options",
    [
        PortOptions(micro_batch=2, accumulation=6),
        PortOptions(micro_batch=3, replicas=4),
        PortOptions(micro_batch=2, accumulation=3, replicas=2),
        PortOptions(micro_batch=12, accumulation=1),
    ],
    ids=["accumulation", "replicas", "both", "neither"],
)
def test_accumulation_and_replicas_are_one_large_batch(options, make_optimizer, train_plainly, train_ported, same):
    torch.manual_seed(0)
    batches = [(torch.randn(12, 4), torch.randint(3, (12,))) for _ in range(10)]
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    model.load_state_dict(plain.state_dict())
    expected = train_plainly(plain, make_optimizer(plain.parameters()), batches)

    options = options.replace(output_mode="all")
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=make_optimizer(model.parameters()), options=options)

    same(train_ported(ported, batches), expected)
    same(ported.state_dict(), plain.state_dict())


def test_device_iterations_are_repeated_steps(make_model, batches, train_plainly, same):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.Adam(plain.parameters(), lr=0.01), batches)
    options = PortOptions(micro_batch=6, device_iterations=5, output_mode="all")
    ported = to_ipu(
        model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters(), lr=0.01), options=options
    )

    losses = []
    for start in range(0, 20, 5):
        x, y = (torch.cat(parts) for parts in zip(*batches[start : start + 5]))
        losses += ported(x, y)[1].tolist()

    same(losses, expected)


@pytest.mark.parametrize(
    ("mode", "loss_shape", "output_shape"),
    [
        ({"output_mode": "default"}, (), (2, 3)),
        ({"output_mode": "final"}, (), (2, 3)),
        ({"output_mode": "all"}, (6,), (12, 3)),
        ({"output_mode": "sum"}, (), (2, 3)),
        ({"output_mode": "every_n", "output_every": 3}, (2,), (4, 3)),
    ],
    ids=lambda value: value.get("output_mode") if isinstance(value, dict) else None,
)
def test_an_output_mode_says_what_comes_back(mode, loss_shape, output_shape, make_model):
    options = PortOptions(micro_batch=2, accumulation=3, device_iterations=2, **mode)
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=options)

    output, loss = ported(torch.randn(12, 4), torch.zeros(12, dtype=torch.int64))

    assert loss.shape == loss_shape
    assert output.shape == output_shape


def test_the_sum_of_gradients_is_taken_when_asked(train_plainly, train_ported, same):
    torch.manual_seed(0)
    batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
    plain, model = nn.Linear(4, 3), nn.Linear(4, 3)
    model.load_state_dict(plain.state_dict())
    train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.4), batches)

    options = PortOptions(micro_batch=2, accumulation=4, reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options)
    train_ported(ported, batches)

    same(ported.state_dict(), plain.state_dict())


def test_half_precision_computes_in_half_and_the_loss_in_single(make_model, batches):
    seen = {}

    def loss(output, label):
        seen["loss"] = output.dtype
        return F.cross_entropy(output, label)

    with pytest.warns(UserWarning, match="P003"):
        ported = to_ipu(make_model(), loss, options=PortOptions(precision="float16"))
    output, value = ported(*batches[0])

    assert output.dtype == torch.float16
    assert (seen["loss"], value.dtype) == (torch.float32, torch.float32)
    assert {tensor.dtype for tensor in ported.model.parameters()} == {torch.float16}


def test_half_precision_trains_close_to_single_precision(make_model, batches, train_plainly, train_ported):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)

    with pytest.warns(UserWarning, match="P003"):
        ported = to_ipu(
            model,
            nn.CrossEntropyLoss(),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            options=PortOptions(precision="float16"),
        )

    torch.testing.assert_close(train_ported(ported, batches), expected, rtol=0.02, atol=0.01)


def test_mixed_precision_keeps_single_precision_weights(make_model, batches, train_plainly, train_ported):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)

    ported = to_ipu(
        model,
        nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        options=PortOptions(precision="mixed"),
    )
    losses = train_ported(ported, batches)

    torch.testing.assert_close(losses, expected, rtol=0.02, atol=0.01)
    assert {tensor.dtype for tensor in ported.model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"loss": nn.CrossEntropyLoss}, OptionError),
        ({"label": 1.5}, OptionError),
        ({"returns": ["output"]}, OptionError),
        ({"optimizer": torch.optim.Adagrad([torch.zeros(1, requires_grad=True)])}, UnsupportedOptimizerError),
    ],
    ids=["loss", "label", "returns", "optimizer"],
)
def test_what_is_refused_is_refused_before_the_precision_changes_the_model(arguments, error, make_model):
    model = make_model()
    settings = {"loss": nn.CrossEntropyLoss(), "options": PortOptions(precision="float16"), **arguments}

    with pytest.raises(error):
        to_ipu(model, **settings)

    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}


def test_options_of_the_backend_are_refused_with_the_right_ones_named(make_model):
    with pytest.raises(OptionError) as caught:
        to_ipu(make_model(), nn.CrossEntropyLoss(), options=poptorch.Options())

    assert caught.value.code == "P002"
    assert "porting.PortOptions" in caught.value.finding.help[0]


# -- the model


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda model: "model", "pass the module itself"),
        (lambda model: nn.DataParallel(model), "pass `model.module`"),
        (lambda model: to_ipu(model, nn.CrossEntropyLoss()), "pass the module itself"),
    ],
    ids=["no module", "DataParallel", "ported already"],
)
def test_what_is_no_plain_module_is_refused_with_advice(make, advice, make_model):
    with pytest.raises(OptionError, match=advice):
        to_ipu(make(make_model()), nn.CrossEntropyLoss())


def test_a_lazy_model_is_ported_with_its_optimizer(batches, train_plainly, train_ported, same):
    def lazy():
        torch.manual_seed(0)
        model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    plain, optimizer = lazy()
    expected = train_plainly(plain, optimizer, batches)
    model, optimizer = lazy()

    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, example=batches[0])

    same(train_ported(ported, batches), expected)
    same(dict(ported.named_parameters()), dict(plain.named_parameters()))
    same(ported.state_dict()["1.running_var"], plain.state_dict()["1.running_var"])


def test_a_lazy_model_in_half_precision_is_materialised_in_half(batches):
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(3))

    with pytest.warns(UserWarning, match="P003"):
        ported = to_ipu(model, nn.CrossEntropyLoss(), options=PortOptions(precision="float16"))
    ported(*batches[0])

    assert {tensor.dtype for tensor in model.parameters()} == {torch.float16}


def test_a_model_without_parameters_infers():
    ported = to_ipu(nn.Softmax(dim=-1))

    assert ported.inference()(torch.zeros(2, 4)).tolist() == [[0.25] * 4] * 2


def test_errors_with_an_example_leave_the_model_plain(make_model, batches):
    model = make_model()
    x, y = batches[0]

    with pytest.raises(BatchError, match="B001"):
        to_ipu(model, nn.CrossEntropyLoss(), options=PortOptions(micro_batch=4), example=(x, y))
    with pytest.raises(PortingError, match="L002"):
        to_ipu(model, nn.CrossEntropyLoss(reduction="none"), example=(x, y))

    assert {type(tensor) for tensor in model.parameters()} == {nn.Parameter}


def test_a_dtype_that_no_ipu_has_is_an_error(make_model):
    class Complex(nn.Linear):
        def forward(self, x):
            return super().forward(torch.view_as_complex(x.view(-1, 2, 2)).real)

    ported = to_ipu(Complex(2, 3), nn.CrossEntropyLoss())

    with pytest.raises(CaptureError, match="C012"):
        ported(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))


def test_gradients_are_clipped_as_before_a_step_on_the_host(make_model, batches):
    plain, model = make_model(), make_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
    expected = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
        optimizer.step()
        expected.append(loss.item())

    ported = to_ipu(model, F.cross_entropy, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), max_grad_norm=0.05)
    losses = [ported(x, y)[1].item() for x, y in batches]

    assert losses == pytest.approx(expected, rel=1e-5)


def test_clipping_without_an_optimizer_is_refused(make_model):
    with pytest.raises(OptionError, match="`max_grad_norm` is given without an optimizer"):
        to_ipu(make_model(), F.cross_entropy, max_grad_norm=1.0)


def test_state_that_a_model_keeps_for_its_next_call_is_warned_of_and_reported():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(4, 4, batch_first=True)
            self.state = None

        def forward(self, x):
            output, self.state = self.layer(x, self.state)
            return output

    model, x = Stateful(), torch.rand(2, 3, 4)

    ported = to_ipu(model, nn.MSELoss(), device="sim")
    with pytest.warns(PortingWarning, match="`forward` keeps a tensor in `self.state`, where it does not stay"):
        ported(x, x)

    assert [finding.code for finding in ported.report().findings] == ["C014"]
    assert model.state is None


def test_the_vendors_lines_about_a_compilation_are_left_out(make_model, batches, capfd):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), device="sim")

    ported(*batches[0])
    ported.inference()(batches[0][0])

    assert capfd.readouterr() == ("", "")
