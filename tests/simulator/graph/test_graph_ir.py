"""The compiled graph as text: which operators it lists, and what it says of each."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import porting.simulator as simulator


class Traced(nn.Module):
    """Runs `body(self, x)` as its forward; `parts` are its sub-modules."""

    def __init__(self, body, **parts):
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.body(self, x)


def compiled(model, x, *, optimizer=None, training=False):
    executor = simulator.inferenceModel(model)
    if training:
        executor = simulator.trainingModel(model, optimizer=optimizer)
    executor.compile(x)
    return executor


def operators(model, x, **kwargs):
    return json.loads(compiled(model, x, **kwargs)._debugGetPopartIR())["maingraph"]


def types(model, x, **kwargs):
    return [op["type"] for op in operators(model, x, **kwargs)]


def trained(self, x):
    return simulator.identity_loss(self.layer(x).relu_(), reduction="mean")


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.Conv2d(1, 1, 3), (1, 1, 4, 4), ["Conv"]),
        (nn.ConvTranspose1d(1, 1, 3), (1, 1, 4), ["ConvTranspose"]),
        (nn.Linear(2, 2), (1, 2), ["MatMul", "Add"]),
        (nn.Linear(2, 2, bias=False), (1, 2), ["MatMul"]),
        (nn.ReLU(inplace=True), (2,), ["Relu"]),
        (nn.Softmax(-1), (2,), ["Softmax"]),
        (nn.MaxPool1d(2), (1, 1, 4), ["MaxPool"]),
        (nn.AdaptiveAvgPool2d(1), (1, 1, 2, 2), ["AveragePool"]),
        (nn.Flatten(), (1, 2, 2), ["Reshape"]),
        (nn.Tanh(), (2,), ["Tanh"]),
        (nn.Hardtanh(), (2,), ["Hardtanh"]),
    ],
)
def test_operators_have_the_compilers_types(layer, shape, expected):
    assert types(Traced(lambda self, x: self.layer(x), layer=layer), torch.ones(shape)) == expected


def test_a_recurrent_layer_is_one_operator():
    model = Traced(lambda self, x: self.layer(x)[0], layer=nn.LSTM(2, 3))

    assert types(model, torch.ones(4, 1, 2)).count("LSTM") == 1


def test_constants_are_folded():
    model = Traced(lambda self, x: x + (torch.ones(2, device=x.device) * 3).sum())

    assert types(model, torch.ones(2)) == ["Add"]


def test_operators_are_connected_by_names():
    model = Traced(lambda self, x: self.b(self.a(x).relu_()), a=nn.Linear(2, 2), b=nn.Linear(2, 2, bias=False))

    product, total, relu, last = operators(model, torch.ones(1, 2))

    assert [tensor["name"] for tensor in product["inputs"]] == ["input", "a.weight"]
    assert product["outputs"][0] == total["inputs"][0]
    assert [tensor["name"] for tensor in relu["inputs"]] == ["a/Add:0"]
    assert [tensor["name"] for tensor in last["inputs"]] == ["Relu:0", "b.weight"]


def test_tensors_have_types_and_shapes():
    (add,) = operators(Traced(lambda self, x: x + 1), torch.ones(2, 3, dtype=torch.int64))

    assert add["inputs"] == [{"name": "input", "type": "INT32", "shape": [2, 3]}]


def test_every_name_of_the_graph_is_a_name_of_a_tensor():
    executor = compiled(Traced(trained, layer=nn.Linear(2, 2, bias=False)), torch.ones(1, 2), training=True)
    names = set(executor.getTensorNames())

    graph = json.loads(executor._debugGetPopartIR())["maingraph"]

    forward = [op for op in graph if "Grad" not in op["type"] and "Update" not in op["type"]]
    assert {tensor["name"] for op in forward for tensor in op["inputs"] + op["outputs"]} <= names


def test_blocks_are_written_with_their_places():
    def body(self, x):
        with simulator.Block("A", ipu_id=0):
            return x + 1

    (add,) = operators(Traced(body), torch.ones(2))

    assert {key: add[key] for key in ("block", "stage", "phase", "ipu")} == {
        "block": "A",
        "stage": 0,
        "phase": 0,
        "ipu": 0,
    }
    assert add["attributes"]["__ipu_number"] == "0"
    assert add["attributes"]["__pipeline_stage"] == "0"
    assert add["attributes"]["other"] == "1"


def test_operators_are_numbered():
    model = Traced(lambda self, x: (x + 1) * 2 - 3)

    assert [op["id"] for op in operators(model, torch.ones(2))] == [0, 1, 2]


def test_training_goes_backward_and_updates():
    found = types(Traced(trained, layer=nn.Linear(2, 2)), torch.ones(1, 2), training=True)

    assert found == [
        *("MatMul", "Add", "Relu", "IdentityLoss"),
        *("IdentityLossGrad", "ReluGrad", "AddGrad", "MatMulLhsGrad", "MatMulRhsGrad"),
        *("SGD0VarUpdate", "SGD0VarUpdate"),
    ]


def test_what_no_gradient_reaches_is_not_differentiated():
    def body(self, x):
        with torch.no_grad():
            frozen = self.frozen(x)
        return simulator.identity_loss(self.layer(x + frozen.detach()), reduction="sum")

    model = Traced(body, layer=nn.Linear(2, 2, bias=False), frozen=nn.Linear(2, 2, bias=False))
    found = operators(model, torch.ones(1, 2), training=True)

    updated = [op["outputs"][0]["name"] for op in found if op["type"] == "SGD0VarUpdate"]
    assert updated == ["UpdatedVar___layer.weight"]
    assert [op["type"] for op in found].count("MatMulRhsGrad") == 1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda p: simulator.optim.SGD(p, lr=0.1, momentum=0.9), {"SGD2AcclUpdate", "SGD2VarUpdate"}),
        (lambda p: simulator.optim.Adam(p, lr=0.1), {"Accumulate", "AdamUpdater", "AdamVarUpdate"}),
        (lambda p: simulator.optim.LAMB(p, lr=0.1), {"Accumulate", "AdamUpdater", "AdamVarUpdate"}),
        (lambda p: simulator.optim.RMSprop(p, lr=0.1), {"Accumulate", "RMSPropUpdater", "ScaledVarUpdate"}),
    ],
)
def test_updates_are_those_of_the_optimizer(make, expected):
    model = Traced(trained, layer=nn.Linear(2, 2, bias=False))
    found = types(model, torch.ones(1, 2), training=True, optimizer=make(model.parameters()))

    assert set(found[found.index("MatMulRhsGrad") + 1 :]) == expected


def test_loops_are_operators_with_lists_of_their_own():
    model = Traced(lambda self, x: simulator.for_loop(3, lambda y: y * 2, [x])[0])
    graphs = json.loads(compiled(model, torch.ones(2))._debugGetPopartIR())

    bodies = {name: [op["type"] for op in ops] for name, ops in graphs.items() if name != "maingraph"}
    assert [op["type"] for op in graphs["maingraph"]].count("Loop") == 1
    assert bodies == {"Loop:0_body_0": ["Mul"]}


def test_only_a_compiled_model_has_a_graph():
    with pytest.raises(simulator.Error, match="Model has not been compiled or has been destroyed"):
        simulator.inferenceModel(nn.ReLU())._debugGetPopartIR()


def test_marks_become_attributes_of_the_operator_before_them():
    def body(self, x):
        x = simulator.set_available_memory(self.layer(x), 0.25)
        return simulator.serializedMatMul(x, x, simulator.MatMulSerializationMode.ReducingDim, factor=2)

    linear, product = operators(Traced(body, layer=nn.Linear(2, 2, bias=False)), torch.ones(2, 2))

    assert linear["attributes"]["__available_memory"] == "0.25"
    assert product["inputs"] == [*linear["outputs"], *linear["outputs"]]
    assert product["attributes"]["serialize_matmul_mode"] == "reducing_dim"
    assert product["attributes"]["serialize_matmul_factor"] == "2"
