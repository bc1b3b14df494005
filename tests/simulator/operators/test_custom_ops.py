"""Custom operators: attributes, implementations in Python, and what they are without one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from porting.simulator import custom_ops


class Custom(nn.Module):
    """A module that applies one custom operator to its inputs, of which the first `num_outputs` are examples."""

    def __init__(self, poptorch, name, *, domain="test", attributes=None, num_outputs=1):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

        def forward(*inputs):
            outputs = poptorch.custom_op(
                list(inputs), name, domain, 1, example_outputs=list(inputs[:num_outputs]), attributes=attributes
            )
            return outputs if num_outputs > 1 else outputs[0]

        self.apply_op = forward

    def forward(self, *inputs):
        return self.apply_op(*inputs)


class Trained(nn.Module):
    """The sum of a custom operator on `x` times a parameter, as a loss."""

    def __init__(self, poptorch, name):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.poptorch, self.name = poptorch, name

    def forward(self, x):
        (y,) = self.poptorch.custom_op([x * self.weight], self.name, "test", 1, example_outputs=[x])
        return self.poptorch.identity_loss(y, "sum")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Let each test register what it likes."""
    monkeypatch.setattr(custom_ops, "_IMPLEMENTATIONS", {})


def test_the_device_runs_the_registered_function(poptorch):
    custom_ops.register_custom_op("Scale", "test", 1, forward=lambda inputs, attributes: inputs[0] * attributes["by"])

    result = poptorch.inferenceModel(Custom(poptorch, "Scale", attributes={"by": 3.0}))(torch.ones(2))

    assert torch.equal(result, torch.full((2,), 3.0))


def test_a_function_may_return_several_outputs(poptorch):
    custom_ops.register_custom_op("Both", "test", forward=lambda inputs, _: (inputs[0] + inputs[1], inputs[0]))
    model = poptorch.inferenceModel(Custom(poptorch, "Both", num_outputs=2))

    results = model(torch.ones(2), torch.full((2,), 4.0))

    assert type(results) is list
    assert [result.tolist() for result in results] == [[5, 5], [1, 1]]


def test_an_output_has_the_shape_that_the_function_gives_it(poptorch):
    custom_ops.register_custom_op("Sum", "test", forward=lambda inputs, _: inputs[0].sum())

    assert poptorch.inferenceModel(Custom(poptorch, "Sum"))(torch.ones(5)).shape == ()


def test_the_cpu_returns_zeros(poptorch):
    example = torch.ones(3, dtype=torch.float16, requires_grad=True)

    results = poptorch.custom_op([torch.ones(2)], "Nothing", "test", 1, example_outputs=[example, torch.ones(1).int()])

    assert [(result.tolist(), result.dtype, result.requires_grad) for result in results] == [
        ([0, 0, 0], torch.float16, True),
        ([0], torch.int32, False),
    ]
    assert type(results) is list


def test_half_tensors_reach_the_function(poptorch):
    seen = []
    custom_ops.register_custom_op(
        "Look", "test", forward=lambda inputs, _: seen.append(inputs[0].dtype) or inputs[0] * 2
    )

    result = poptorch.inferenceModel(Custom(poptorch, "Look"))(torch.ones(2).half())

    assert (seen, result.dtype) == ([torch.float16], torch.float16)


def test_autograd_differentiates_the_function(poptorch):
    custom_ops.register_custom_op("Square", "test", forward=lambda inputs, _: inputs[0] ** 2)
    model = Trained(poptorch, "Square")
    x = torch.tensor([3.0, 1.0])

    poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))(x)

    start = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(model.weight.detach(), start - 0.1 * 2 * start * x**2)


def test_a_registered_gradient_is_used_instead(poptorch):
    seen = []

    def backward(inputs, outputs, gradients, attributes):
        seen.append((len(inputs), len(outputs), gradients[0].tolist(), dict(attributes)))
        return torch.full_like(inputs[0], 10.0)

    custom_ops.register_custom_op("Round", "test", forward=lambda inputs, _: inputs[0].round(), backward=backward)
    model = Trained(poptorch, "Round")

    poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))(torch.ones(2))

    assert seen == [(1, 1, [1.0, 1.0], {})]
    torch.testing.assert_close(model.weight.detach(), torch.tensor([0.0, 1.0]))


def test_an_operator_without_implementation_is_refused_at_compilation(poptorch):
    model = poptorch.inferenceModel(Custom(poptorch, "Missing", domain="com.example"))

    with pytest.raises(poptorch.Error, match=r"custom operator Missing \(domain com.example, version 1\)") as caught:
        model.compile(torch.ones(2))

    assert "register_custom_op('Missing', 'com.example', 1, forward=...)" in str(caught.value)


def test_only_functions_can_be_registered():
    with pytest.raises(TypeError, match="forward must be a function"):
        custom_ops.register_custom_op("X", "test", 1, forward=3)


# -- attributes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({1: 2}, "All attribute keys must be strings."),
        ({"a": None}, "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."),
        ({"a": [None]}, "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."),
        ({"a": {}}, "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."),
        ({"a": [1, 2.0]}, "The types in a list/tuple attribute must all be the same."),
        ({"a": ("b", 1)}, "The types in a list/tuple attribute must all be the same."),
        ({"a": "aἀb"}, "aἀb contains non-ASCII characters."),
        ({"a": ["x", "aἀb"]}, "aἀb contains non-ASCII characters."),
        ({"aἀb": 1}, "aἀb contains non-ASCII characters."),
    ],
)
def test_attributes_are_checked(poptorch, attributes, message):
    with pytest.raises(ValueError, match=message):
        poptorch.custom_op([torch.ones(1)], "X", "test", 1, example_outputs=[], attributes=attributes)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.7976931348623157e308, "-1.79769e+308 is too low for a Popart float attribute."),
        (1.7976931348623157e308, "1.79769e+308 is too high for a Popart float attribute."),
        ([1.0, -1.7976931348623157e308], "-1.79769e+308 is too low for a Popart float attribute."),
        ((1.0, 1.7976931348623157e308), "1.79769e+308 is too high for a Popart float attribute."),
    ],
)
def test_floats_must_fit_float32_at_compilation(poptorch, value, message):
    custom_ops.register_custom_op("Any", "test", forward=lambda inputs, _: inputs[0] * 1)
    model = Custom(poptorch, "Any", attributes={"a": value})
    model(torch.ones(1))  # the CPU looks at no value

    with pytest.raises(poptorch.Error, match=message.replace("+", r"\+").replace(".", r"\.")):
        poptorch.inferenceModel(model)(torch.ones(1))


def test_attributes_reach_the_function_unchanged(poptorch):
    attributes = {"f": 0.1, "i": -5, "s": "a \" ' \\ b", "fs": [1.0, -2.5], "is": (1, 2), "ss": ["x", "y"]}
    seen = []
    custom_ops.register_custom_op(
        "See", "test", forward=lambda inputs, given: seen.append(dict(given)) or inputs[0] * 1
    )

    poptorch.inferenceModel(Custom(poptorch, "See", attributes=attributes))(torch.ones(1))

    assert seen == [{**attributes, "is": [1, 2]}]
    assert type(seen[0]["fs"][0]) is float


def test_equal_attributes_are_kept_once(poptorch):
    def apply(attributes):
        poptorch.custom_op([torch.ones(1)], "X", "test", 1, example_outputs=[], attributes=attributes)
        return len(poptorch.ops.attributes_lists)

    before = apply({"unique": [1, 2]})

    assert apply({"unique": [1, 2]}) == before
    assert apply({"unique": [1.0, 2.0]}) == before + 1
    assert apply({"unique": [1, 3]}) == before + 2


def test_attributes_can_be_looked_up(poptorch):
    poptorch.custom_op([torch.ones(1)], "X", "test", 1, example_outputs=[], attributes={"looked": "up"})
    kept = poptorch.ops.attributes_lists[-1]

    assert poptorch.accessAttributes(poptorch.ATTR_PREFIX + hex(id(kept))) is kept
    assert poptorch.accessAttributes('{"a": [1, 2]}') == {"a": [1, 2]}
    assert poptorch.accessAttributes(None) == {}


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        (3, "Wrong type for attribute_id_str"),
        ("0x12", "Invalid attribute_id_str"),
        ("attr:0x1", "Invalid attribute_id_str"),
        ("attr:wibble", "Invalid attribute_id_str"),
    ],
)
def test_other_identifiers_are_refused(poptorch, identifier, message):
    with pytest.raises(ValueError, match=message):
        poptorch.accessAttributes(identifier)


# -- the operators of PopTorch's examples ------------------------------------------------------------------------------

MANY_ATTRIBUTES = {
    "strs": ["abc", "def", "ghi"],
    "float_one": 1.0,
    "float_minus_two": -2.0,
    "int_zero": 0,
    "int_minus_five": -5,
    "floats_one_two_three": [1.0, 2.0, 3.0],
    "floats_minus_one_two_three": [-1.0, -2.0, -3.0],
    "ints_one_two_three": [1, 2, 3],
    "ints_minus_one_two_three": [-1, -2, -3],
    "a_string": "string with quotes and slash \" ' \\ end",
}


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("AddScalarFloat", {"scalar": 0.5}, [1.5, -1.5]),
        ("AddScalarInt", {"scalar": 2}, [3, 0]),
        ("AddScalarVecFloat", {"vec": [1.0, 2.0]}, [2, 0]),
        ("AddScalarVecInt", {"vec": [1, 2]}, [2, 0]),
        ("AddVecScalarMulFloat", {"vec": [1.0, 3.0], "scalar": 4.0}, [8, 4]),
        ("ReduceOp", {"reduction": "sum"}, -1),
        ("ReduceOp", {"reduction": "mean"}, -0.5),
        ("ManyAttributeOp", MANY_ATTRIBUTES, [2, -1]),
        ("ManyAttributeOp", {**MANY_ATTRIBUTES, "int_zero": 0.0}, [1, -2]),
    ],
)
def test_operators_of_the_examples_are_known(poptorch, name, attributes, expected):
    model = Custom(poptorch, name, domain="test.poptorch", attributes=attributes)

    assert poptorch.inferenceModel(model)(torch.tensor([1.0, -2.0])).tolist() == expected


def test_the_three_reductions_of_the_examples_are_known(poptorch):
    model = Custom(
        poptorch,
        "ThreeReduceOp",
        domain="test.poptorch",
        attributes={"reductions": ["sum", "mean", "sum"]},
        num_outputs=3,
    )
    x = torch.tensor([1.0, 3.0])

    assert [result.item() for result in poptorch.inferenceModel(model)(x, x, 2 * x)] == [4, 2, 8]


def test_cube_and_leaky_relu_of_the_examples_are_known(poptorch):
    cube = poptorch.inferenceModel(Custom(poptorch, "Cube", domain="com.acme", num_outputs=2))
    relu = poptorch.inferenceModel(Custom(poptorch, "LeakyRelu", domain="com.acme", attributes={"alpha": 0.5}))

    plus_bias, alone = cube(torch.tensor([2.0, -1.0]), torch.tensor([1.0, 1.0]))

    assert (plus_bias.tolist(), alone.tolist()) == ([9, 0], [8, -1])
    assert relu(torch.tensor([2.0, -1.0])).tolist() == [2, -0.5]


def test_the_range_check_knows_infinity(poptorch):
    custom_ops.register_custom_op("Any", "test", forward=lambda inputs, _: inputs[0] * 1)

    with pytest.raises(poptorch.Error, match="inf is too high"):
        poptorch.inferenceModel(Custom(poptorch, "Any", attributes={"a": math.inf}))(torch.ones(1))
