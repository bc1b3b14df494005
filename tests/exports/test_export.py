"""A step that comes back from its file is the one that was captured, to the last operator."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import PortOptions, to_ipu
from porting.diagnostics import ExecutableError, OptionError
from porting.executables.key import make_executable_key
from porting.exports import capture, export, load_step
from porting.exports.dumps import dump_graph


def digest(step):
    return make_executable_key(step.graph, step.request, engine="aot").digest


def test_exporting_trains_nothing_and_gives_the_model_back(parts, tmp_path):
    model, loss, batch, optimizer = parts
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = {name: type(parameter) for name, parameter in model.named_parameters()}

    export(model, loss, batch, tmp_path / "model.step", optimizer=optimizer)

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name: type(parameter) for name, parameter in model.named_parameters()} == kinds


def test_lazy_modules_get_their_parameters(tmp_path):
    model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(3))

    step = export(model, nn.CrossEntropyLoss(), (torch.ones(4, 7), torch.zeros(4).long()), tmp_path / "lazy.step")

    assert step.graph.parameters[0].shape == (5, 7)


def test_inference_is_exported_without_labels(parts, tmp_path):
    model, loss, batch, _optimizer = parts

    step = export(model, loss, batch, tmp_path / "model.step", mode="inference")

    assert (step.graph.mode, len(step.graph.inputs), step.request.groups) == ("inference", 1, ())


@pytest.mark.filterwarnings("ignore:.*weights were converted")
@pytest.mark.parametrize("precision", ["float16", "mixed", "bfloat16"])
def test_a_precision_is_part_of_the_step(parts, tmp_path, precision):
    model, loss, batch, optimizer = parts
    options = PortOptions(precision=precision)

    step = export(model, loss, batch, tmp_path / "model.step", optimizer=optimizer, options=options)

    assert load_step(tmp_path / "model.step").precision == precision
    assert digest(load_step(tmp_path / "model.step")) == digest(step)


class Looping(nn.Linear):
    """Has a loop of the device, whose body is a graph of its own."""

    def forward(self, x):
        return poptorch.for_loop(3, lambda value: super(Looping, self).forward(value), [x])[0]


def test_the_bodies_of_loops_come_along(tmp_path):
    step = export(Looping(3, 3), None, torch.ones(4, 3), tmp_path / "loop.step", mode="inference")

    assert digest(load_step(tmp_path / "loop.step")) == digest(step)


class OnTheHost(nn.Linear):
    """Calls Python of the host."""

    def forward(self, x):
        return super().forward(poptorch.CPU(lambda value: value * 2, "doubled")(x))


def test_a_function_of_the_host_cannot_be_exported(tmp_path):
    with pytest.raises(ExecutableError) as raised:
        export(OnTheHost(4, 3), nn.CrossEntropyLoss(), (torch.ones(4, 4), torch.zeros(4).long()), tmp_path / "x.step")

    assert raised.value.code == "E027"
    assert raised.value.finding.place.file == __file__
    assert not (tmp_path / "x.step").exists()


def test_a_mode_that_there_is_not_is_refused(parts):
    model, loss, batch, _optimizer = parts

    with pytest.raises(OptionError, match="P002"):
        capture(model, loss, batch, mode="testing")


def test_the_key_is_that_of_a_ported_model(parts, monkeypatch):
    model, loss, batch, optimizer = parts
    keys = []

    def spy(graph, request, **keywords):
        keys.append(make_executable_key(graph, request, **keywords).digest)
        return make_executable_key(graph, request, **keywords)

    monkeypatch.setattr("porting.executables.make_executable_key", spy)
    options = PortOptions(micro_batch=2, accumulation=2, device_iterations=2, computation_order="chen")
    step = capture(model, loss, batch, optimizer=optimizer, options=options)
    ported = to_ipu(model, loss, optimizer=optimizer, options=options.replace(engine="auto"), device="sim")
    monkeypatch.setattr("porting.engines.tuning.tuner.list_tuned_engines", lambda: [])
    from porting.engines.recompute.recomputation import order_computation
    from porting.options import ComputationOrder

    ported.compile(*batch)

    ordered = order_computation(step.graph, ComputationOrder.of("chen"))
    assert keys == [make_executable_key(ordered, step.request, engine="auto").digest]


def test_an_unknown_translator_is_said_to_be_unsupported(parts, tmp_path):
    model, loss, batch, _optimizer = parts

    with pytest.raises(NotImplementedError, match="Unsupported translator: ch2o"):
        export(model, loss, batch, tmp_path / "model.step", translator="ch2o")

    assert list(tmp_path.iterdir()) == []


def test_the_onnx_translator_writes_what_the_dump_is(parts, tmp_path):
    pytest.importorskip("onnx")
    model, loss, batch, _optimizer = parts

    step = export(model, loss, batch, tmp_path / "model.onnx", translator="onnx")

    assert (tmp_path / "model.onnx").read_bytes() == dump_graph(step, "onnx")
