"""Nested values in and out of forward, and values that are no tensors."""

from __future__ import annotations

import collections

import pytest
import torch
from torch import nn

Point = collections.namedtuple("Point", "x y")


class Mapping(dict):
    """A dictionary of a class of its own."""


class Wrapper:
    """A type that nobody but its parser can look into."""

    def __init__(self, label, tensor):
        self.label, self.tensor = label, tensor


def executor_of(poptorch, forward):
    model = nn.Module()
    model.forward = forward
    return poptorch.inferenceModel(model)


def run(poptorch, forward, *args, **kwargs):
    return executor_of(poptorch, forward)(*args, **kwargs)


@pytest.fixture
def parser(poptorch):
    """Register a parser of `Wrapper` for one test."""

    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield struct.tensor

        def reconstruct(self, original_structure, tensor_iterator):
            return type(original_structure)(original_structure.label, next(tensor_iterator))

    poptorch.registerCustomArgParser(Wrapper, Parser())
    yield
    poptorch.registerCustomArgParser(Wrapper, None)


# -- out


def test_the_structure_of_the_output_is_forwards(poptorch):
    def forward(x):
        return {"a": [x + 1, (x + 2, Point(x + 3, "text"))]}

    result = run(poptorch, forward, torch.zeros(1))

    assert str(result) == str(forward(torch.zeros(1)))


def test_dictionaries_of_a_class_of_their_own_keep_it(poptorch):
    result = run(poptorch, lambda x: Mapping(a=x + 1), torch.zeros(1))

    assert type(result) is Mapping


def test_nothing_can_be_returned(poptorch):
    assert run(poptorch, lambda x: None, torch.zeros(1)) is None


def test_values_that_are_no_tensors_are_the_same_objects_in_each_call(poptorch):
    value = object()
    executor = executor_of(poptorch, lambda x: (x, value))

    assert executor(torch.zeros(1))[1] is executor(torch.zeros(1))[1] is value


def test_an_input_can_be_returned(poptorch):
    x = torch.ones(2)

    result = run(poptorch, lambda x: x, x)

    assert torch.equal(result, x)
    assert result.data_ptr() != x.data_ptr()


def test_the_same_tensor_can_be_returned_twice(poptorch):
    def forward(x):
        y = x + 1
        return y, [y]

    first, (second,) = run(poptorch, forward, torch.zeros(1))

    assert first.item() == second.item() == 1.0


def test_a_view_of_an_input_can_be_returned(poptorch):
    x = torch.ones(2, 3)

    result = run(poptorch, lambda x: x.t()[1:], x)

    assert torch.equal(result, x.t()[1:])
    assert result.data_ptr() != x[0, 1:].data_ptr()


def test_parameters_are_returned_as_they_were_before_the_update(poptorch):
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(1))
    model.forward = lambda x: (model.weight, poptorch.identity_loss(model.weight * x, "sum"))
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))

    weights = [executor(torch.ones(1))[0] for _ in range(2)]

    assert [weight.item() for weight in weights] == [1.0, 0.0]
    assert not weights[0].requires_grad


def test_host_tensors_are_returned_with_a_warning(poptorch):
    constant = torch.ones(1)
    executor = executor_of(poptorch, lambda x: (x, constant))

    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu"):
        executor.compile(torch.zeros(1))

    assert executor(torch.zeros(1))[1] is constant


def test_outputs_made_without_any_input_are_returned(poptorch):
    assert run(poptorch, lambda: torch.ones(2, device="ipu") + 1).tolist() == [2.0, 2.0]


# -- in


def test_forward_may_have_no_inputs(poptorch):
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(1))
    model.forward = lambda: poptorch.identity_loss(model.weight * 3, "sum")

    loss = poptorch.trainingModel(model)()

    assert loss.item() == 3.0


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_stay_lists_and_tuples_stay_tuples(poptorch, kind):
    seen = []

    run(poptorch, lambda xs: seen.append(type(xs)), kind([torch.zeros(1)]))

    assert seen == [kind]


def test_tensors_anywhere_are_inputs(poptorch):
    executor = executor_of(poptorch, lambda a, b: a[0]["k"] + b.y)
    executor([{"k": torch.zeros(1)}], b=Point("text", torch.zeros(1)))

    result = executor([{"k": torch.ones(1)}], b=Point("text", torch.ones(1)))

    assert result.item() == 2.0


def test_other_values_are_compiled_in(poptorch):
    assert run(poptorch, lambda x, factor, mode=None: x * factor if mode else x, torch.ones(1), 3, "on").item() == 3.0


def test_another_value_is_refused(poptorch):
    executor = executor_of(poptorch, lambda x, factor: x * factor)
    executor(torch.ones(1), 3)

    with pytest.raises(poptorch.Error, match="Value mismatch for factor: expected 3 but got 4."):
        executor(torch.ones(1), 4)


def test_a_module_can_be_an_argument(poptorch):
    relu = nn.ReLU()

    assert run(poptorch, lambda x, layer: layer(x), -torch.ones(1), relu).item() == 0.0


def test_tensors_of_a_dictionary_are_matched_by_key(poptorch):
    executor = executor_of(poptorch, lambda d: d["a"] - d["b"])
    executor({"a": torch.ones(1), "b": torch.zeros(1)})

    assert executor({"b": torch.tensor([1.0]), "a": torch.tensor([5.0])}).item() == 4.0


def test_dictionaries_are_warned_of_when_compiling(poptorch, caplog):
    executor = executor_of(poptorch, lambda d: d["a"] + 1)

    executor({"a": torch.ones(1)})
    executor({"a": torch.ones(1)})

    assert caplog.text.count("Dicts as inputs only have partial support") == 1


def test_defaults_that_are_tensors_are_inputs(poptorch):
    executor = executor_of(poptorch, lambda x, scale=torch.tensor([2.0]): x * scale)  # noqa: B008
    default = executor(torch.ones(1))

    assert (default.item(), executor(torch.ones(1), torch.tensor([5.0])).item()) == (2.0, 5.0)


def test_inputs_with_a_gradient_are_detached_with_a_warning(poptorch, caplog):
    result = run(poptorch, lambda x: x * 2, torch.ones(1, requires_grad=True))

    assert not result.requires_grad
    assert "Input tensor has requires_grad=True set. This tensor will be detached" in caplog.text


def test_inputs_are_not_changed_by_a_call(poptorch):
    x = torch.ones(2)

    run(poptorch, lambda x: (x * 2).add_(1), x)

    assert x.tolist() == [1.0, 1.0]


# -- types with a parser of their own


@pytest.mark.usefixtures("parser")
def test_a_registered_type_goes_in_and_out(poptorch):
    result = run(poptorch, lambda w: Wrapper("out", w.tensor + 1), Wrapper("in", torch.zeros(2)))

    assert (result.label, result.tensor.tolist()) == ("out", [1.0, 1.0])


@pytest.mark.usefixtures("parser")
def test_a_registered_type_is_compared_by_its_tensors(poptorch):
    executor = executor_of(poptorch, lambda w: w.tensor + 1)
    executor(Wrapper("first", torch.zeros(2)))

    result = executor(Wrapper("second", torch.ones(2)))

    assert result.tolist() == [2.0, 2.0]
    with pytest.raises(poptorch.Error, match=r"Shape mismatch for w\[0\]"):
        executor(Wrapper("third", torch.ones(3)))


@pytest.mark.usefixtures("parser")
def test_a_type_derived_from_a_registered_one_uses_its_parser(poptorch):
    class Derived(Wrapper):
        pass

    assert run(poptorch, lambda w: w.tensor + 1, Derived("in", torch.zeros(1))).item() == 1.0


def test_a_parser_may_rebuild_objects_of_another_type(poptorch):
    class Plain(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield struct.tensor

        def reconstruct(self, original_structure, tensor_iterator):
            return (original_structure.label, next(tensor_iterator))

    poptorch.registerCustomArgParser(Wrapper, Plain())
    try:
        executor = executor_of(poptorch, lambda pairs: pairs[0][1] + 1)
        executor([Wrapper("a", torch.zeros(1))])

        output = executor([Wrapper("b", torch.ones(1))])
    finally:
        poptorch.registerCustomArgParser(Wrapper, None)

    assert output.item() == 2
    assert executor.isCompiled()


def test_an_unregistered_type_is_a_constant(poptorch):
    wrapper = Wrapper("in", None)
    executor = executor_of(poptorch, lambda x, w: x + len(w.label))

    assert executor(torch.zeros(1), wrapper).item() == 2.0
    with pytest.raises(poptorch.Error, match="Value mismatch for w"):
        executor(torch.zeros(1), Wrapper("other", None))


def test_a_parser_must_be_one(poptorch):
    with pytest.raises(poptorch.Error, match="arg_parser must inherit from ICustomArgParser"):
        poptorch.registerCustomArgParser(Wrapper, object())


# -- the helpers


def test_flattening_goes_depth_first(poptorch):
    tensors = [torch.tensor(i) for i in range(3)]

    flat = poptorch.flattenTensorStructure([tensors[0], {"b": (tensors[1],), "a": "text"}, Point(None, tensors[2])])

    assert all(ours is theirs for ours, theirs in zip(flat, tensors))


def test_flattening_follows_the_canonical_order_of_keys(poptorch):
    a, b = torch.tensor(1), torch.tensor(2)

    flat = poptorch.flattenTensorStructure({"b": b, "a": a}, {"a": None, "b": None})

    assert flat == [a, b]


def test_reconstructing_keeps_what_the_filter_declines(poptorch):
    kept, text = torch.tensor(1), "text"

    result = poptorch.reconstructTensorStructure(
        [kept, text, torch.tensor(2)], ["new"], lambda tensor: tensor.item() == 2
    )

    assert result == [kept, text, "new"]
    assert result[0] is kept


def test_a_parser_has_both_methods(poptorch):
    class OnlyYields(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield struct

    with pytest.raises(TypeError, match="abstract"):
        OnlyYields()
