"""Loops and branches on the device: they run, by value, as often as they say."""

from __future__ import annotations

import sys

import numpy
import pytest
import torch
from torch import nn


class Function(nn.Module):
    """A module whose `forward` is `function`."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args):
        return self.function(self, *args)


@pytest.fixture
def infer(poptorch):
    """Give a function that runs `function(module, *args)` on the device."""

    def infer(function, *args, options=None, **modules):
        return poptorch.inferenceModel(Function(function, **modules), options)(*args)

    return infer


# -- for_loop ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loop_runs_as_often_as_it_says(poptorch, infer, count):
    (result,) = infer(lambda _, x: poptorch.for_loop(count, lambda v: v * 2, [x]), torch.ones(3))

    assert torch.equal(result, torch.full((3,), 2.0**count))


def test_a_loop_on_the_cpu_runs_once(poptorch):
    (result,) = poptorch.for_loop(5, lambda v: v * 2, [torch.ones(3)])

    assert torch.equal(result, torch.full((3,), 2.0))


def test_the_body_gets_its_inputs_unpacked_and_may_swap_them(poptorch, infer):
    def forward(_, x, y):
        return poptorch.for_loop(3, lambda a, b: (b, a), [x, y])

    first, second = infer(forward, torch.zeros(2), torch.ones(2))

    assert torch.equal(first, torch.ones(2))
    assert torch.equal(second, torch.zeros(2))


def test_the_result_of_a_loop_is_a_list(poptorch, infer):
    result = infer(lambda _, x: poptorch.for_loop(2, lambda v: v + 1, [x]), torch.ones(1))

    assert type(result) is list


def test_in_place_changes_in_a_body_stay_in_it(poptorch, infer):
    x = torch.ones(2)

    def body(value):
        value += 1
        value.mul_(2)
        return value

    (result,), seen = infer(lambda _, x: (poptorch.for_loop(3, body, [x]), x), x)

    assert torch.equal(result, torch.full((2,), 22.0))
    assert torch.equal(seen, torch.ones(2))
    assert torch.equal(x, torch.ones(2))


def test_in_place_changes_in_a_body_stay_in_it_on_the_cpu_too(poptorch):
    x = torch.ones(2)

    poptorch.for_loop(3, lambda value: value.add_(1), [x])

    assert torch.equal(x, torch.ones(2))


def test_results_of_a_body_do_not_share_memory(poptorch, infer):
    def body(a, b):
        a += 1
        return a, a

    first, second = infer(lambda _, x: poptorch.for_loop(3, body, [x, x]), torch.zeros(2))

    assert torch.equal(first, torch.full((2,), 3.0))
    assert torch.equal(second, torch.full((2,), 3.0))


def test_a_body_may_return_its_views(poptorch, infer):
    (result,) = infer(lambda _, x: poptorch.for_loop(3, lambda v: v.t(), [x]), torch.arange(4.0).reshape(2, 2))

    assert torch.equal(result, torch.tensor([[0.0, 2.0], [1.0, 3.0]]))


def test_a_body_reads_parameters_and_tensors_around_it(poptorch, infer):
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)

    def forward(module, x):
        offset = x.mean() + torch.tensor([1.0, 2.0, 3.0])
        return poptorch.for_loop(3, lambda v: module.layer(v) + offset, [x])

    (result,) = infer(forward, x, layer=layer)

    expected = x
    for _ in range(3):
        expected = layer(expected) + x.mean() + torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(result, expected)


def test_weights_in_a_list_are_those_of_the_device(poptorch, infer):
    layer = nn.Linear(2, 2)
    weights = list(layer.parameters())

    result, _ = infer(
        lambda _, x: poptorch.for_loop(2, lambda v, w: (v @ weights[0], weights[1]), [x, weights[1]]),
        torch.ones(1, 2),
        layer=layer,
    )

    torch.testing.assert_close(result, (torch.ones(1, 2) @ weights[0] @ weights[0]).detach())


def test_a_body_may_return_a_tensor_from_around_it(poptorch, infer):
    def forward(_, x, y):
        (result,) = poptorch.for_loop(2, lambda v: y, [x])
        result += 1
        return result, y

    result, y = infer(forward, torch.zeros(2), torch.ones(2))

    assert torch.equal(result, torch.full((2,), 2.0))
    assert torch.equal(y, torch.ones(2))


def test_constants_of_a_body_are_new_in_each_round(poptorch, infer):
    def body(value):
        step = torch.tensor([1.0, 2.0])
        step += 1
        return value + step

    (result,) = infer(lambda _, x: poptorch.for_loop(3, body, [x]), torch.zeros(2))

    assert torch.equal(result, torch.tensor([6.0, 9.0]))


def test_tensors_in_a_body_are_on_the_device(poptorch, infer):
    seen = []

    def body(value):
        seen.append((value.device.type, value.dtype, tuple(value.shape), poptorch.isRunningOnIpu()))
        return value + torch.ones(2, 3, dtype=value.dtype, device=value.device)

    infer(lambda _, x: poptorch.for_loop(4, body, [x]), torch.ones(2, 3).half())

    assert seen == [("ipu", torch.float16, (2, 3), True)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.int64, torch.uint8])
def test_loops_run_in_every_type(poptorch, infer, dtype):
    x = torch.tensor([1, 2], dtype=dtype)

    (result,) = infer(lambda _, x: poptorch.for_loop(3, lambda v: v * 2, [x]), x)

    assert result.tolist() == [8, 16]
    assert result.dtype == (torch.int32 if dtype == torch.int64 else dtype)


def test_loops_nest(poptorch, infer):
    def body(value, index):
        (value,) = poptorch.for_loop(2, lambda v: v * 2 + index, [value])
        return value, index + 1

    def forward(_, x):
        return poptorch.for_loop(3, body, [x, torch.zeros(1, device=x.device)])

    result, rounds = infer(forward, torch.ones(1))

    expected = 1.0
    for index in range(3):
        for _ in range(2):
            expected = expected * 2 + index
    assert result.item() == expected
    assert rounds.item() == 3


def test_each_micro_batch_runs_its_own_loop(poptorch, infer):
    x = torch.randn(6, 2)
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)

    (result,) = infer(lambda _, x: poptorch.for_loop(4, lambda v: v / v.norm(), [x]), x, options=options)

    torch.testing.assert_close(result, x / x.norm(dim=1, keepdim=True))


def test_random_operators_in_a_body_draw_anew_in_each_round(poptorch, infer):
    def body(value, former):
        return torch.rand_like(value), value

    now, before = infer(lambda _, x: poptorch.for_loop(2, body, [x, x]), torch.zeros(100))

    assert not torch.equal(now, before)


def test_random_operators_in_a_body_use_the_device_s_stream(poptorch):
    model = Function(lambda _, x: poptorch.for_loop(2, lambda v: v + torch.rand_like(v), [x]))
    options = [poptorch.Options().randomSeed(7) for _ in range(2)]

    first, second = (poptorch.inferenceModel(model, one)(torch.zeros(9))[0] for one in options)

    assert torch.equal(first, second)


def test_dropout_in_a_body_is_active(poptorch, infer):
    (result,) = infer(
        lambda module, x: poptorch.for_loop(1, lambda v: module.drop(v), [x]), torch.ones(1000), drop=nn.Dropout(0.5)
    )

    assert 300 < (result == 0).sum() < 700


def test_options_of_the_compiler_hold_in_bodies(poptorch, infer):
    norm, x = nn.GroupNorm(2, 4), torch.randn(2, 4, 3)
    options = poptorch.Options()
    options._Popart.set("groupNormStridedChannelGrouping", True)

    def forward(module, x):
        return poptorch.for_loop(1, lambda v: module.norm(v), [x])

    (plain,) = infer(forward, x, norm=norm)
    (strided,) = infer(forward, x, norm=norm, options=options)

    torch.testing.assert_close(plain, norm(x).detach())
    assert not torch.allclose(strided, plain)


def test_a_loop_without_inputs_returns_none(poptorch, infer):
    assert infer(lambda _, x: (poptorch.for_loop(3, lambda: [], []), x), torch.ones(1))[0] == []


@pytest.mark.parametrize(
    ("count", "kind"), [(-1, "-1"), (2.0, "float"), (True, "bool"), ("3", "str"), (torch.tensor(3), "Tensor")]
)
def test_the_count_of_a_loop_is_a_number_of_iterations(poptorch, count, kind):
    with pytest.raises(ValueError, match="number of iterations") as caught:
        poptorch.for_loop(count, lambda a: a, [torch.ones(1)])

    assert str(caught.value) == (
        f"poptorch.for_loop expects the number of iterations (count) to be a non-negative int. (Object is {kind})"
    )


@pytest.mark.parametrize("count", [0, 3, numpy.int64(2)])
def test_a_loop_runs_as_often_as_any_integer_says(poptorch, infer, count):
    assert infer(lambda _, x: poptorch.for_loop(count, lambda a: a + 1, [x])[0], torch.zeros(1)).item() == count


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            torch.ones(1),
            r"poptorch.for_loop expects input tensors \(inputs\) to be a list of tensors. \(Object is not list\)",
        ),
        ((torch.ones(1),), r"\(Object is not list\)"),
        ([torch.ones(1), 2], r"\(Object contained in list at index 1 is not torch.tensor\)"),
    ],
)
def test_inputs_of_a_loop_must_be_a_list_of_tensors(poptorch, inputs, message):
    with pytest.raises(ValueError, match=message):
        poptorch.for_loop(3, lambda x: x, inputs)


def test_a_body_must_return_as_many_tensors_as_it_gets(poptorch, infer):
    with pytest.raises(poptorch.Error, match="expected 1 but got 2") as caught:
        infer(lambda _, x: poptorch.for_loop(3, lambda v: (v, v), [x]), torch.ones(1))

    assert "test_control_flow.py" in caught.value.location


@pytest.mark.parametrize("body", [lambda v: v.sum(), lambda v: v.half(), lambda v: v > 0])
def test_a_body_must_return_what_it_can_take_again(poptorch, infer, body):
    with pytest.raises(poptorch.Error, match=r"input 0 is float32\[2\], but output 0 is"):
        infer(lambda _, x: poptorch.for_loop(3, body, [x]), torch.ones(2))


def test_a_body_must_return_tensors(poptorch, infer):
    with pytest.raises(poptorch.Error, match="must return tensors, got NoneType"):
        infer(lambda _, x: poptorch.for_loop(3, lambda v: None, [x]), torch.ones(2))


def test_a_body_may_not_write_around_itself(poptorch, infer):
    def forward(_, x):
        total = torch.zeros(2, device=x.device)
        poptorch.for_loop(3, lambda v: v + total.add_(1), [x])
        return total

    with pytest.raises(poptorch.Error, match="writes to a tensor that lives outside of it"):
        infer(forward, torch.ones(2))


def test_a_body_may_not_update_buffers(poptorch, infer):
    with pytest.raises(poptorch.Error, match="writes to a tensor that lives outside of it"):
        infer(
            lambda module, x: poptorch.for_loop(3, lambda v: module.norm(v), [x]),
            torch.ones(2, 3),
            norm=nn.BatchNorm1d(3),
        )


def test_what_a_body_makes_does_not_exist_outside(poptorch, infer):
    def forward(_, x):
        kept = []

        def body(value):
            kept.append(value * 2)
            return value

        poptorch.for_loop(3, body, [x])
        return kept[0] + 1

    with pytest.raises(poptorch.Error, match="made inside the body of a loop or branch is used outside of it"):
        infer(forward, torch.ones(2))


def test_reading_a_value_in_a_body_is_refused(poptorch, infer):
    with pytest.raises(poptorch.Error, match="aten::item is only supported in eager mode"):
        infer(lambda _, x: poptorch.for_loop(3, lambda v: v * v.sum().item(), [x]), torch.ones(2))


def test_exceptions_of_a_body_come_through_and_leave_nothing_behind(poptorch):
    def body(value):
        raise RuntimeError("from the body")

    model = Function(lambda module, x: poptorch.for_loop(3, body, [module.layer(x)]), layer=nn.Linear(2, 2))
    weight = model.layer.weight

    with pytest.raises(RuntimeError, match="from the body"):
        poptorch.inferenceModel(model)(torch.ones(1, 2))

    assert model.layer.weight is weight
    assert not poptorch.isRunningOnIpu()
    assert model.layer(torch.ones(1, 2)).shape == (1, 2)


def test_forward_may_go_on_after_a_loop_that_failed(poptorch, infer):
    def fail(value):
        value += 1
        raise RuntimeError("from the body")

    def forward(_, x):
        for attempt in (
            lambda: poptorch.for_loop(3, fail, [x]),
            lambda: poptorch.for_loop(3, lambda v: poptorch.for_loop(3, fail, [v]), [x]),
            lambda: poptorch.cond(x.sum() > 0, lambda v: v, [x], fail, [x]),
        ):
            with pytest.raises(RuntimeError, match="from the body"):
                attempt()
        return poptorch.for_loop(2, lambda v: v * 3, [x + 1])

    (result,) = infer(forward, torch.ones(2))

    assert torch.equal(result, torch.full((2,), 18.0))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
def test_errors_that_only_values_cause_name_the_line_in_the_body(poptorch, infer):
    def forward(_, x, index):
        return poptorch.for_loop(2, lambda v: v + torch.gather(v, 0, index), [x])

    with pytest.raises(RuntimeError, match="out of bounds") as caught:
        infer(forward, torch.ones(2), torch.tensor([0, 7]))

    assert "test_control_flow.py" in "".join(caught.value.__notes__)


def test_loops_are_for_inference_only(poptorch):
    def forward(module, x):
        (value,) = poptorch.for_loop(3, lambda v: module.layer(v), [x])
        return poptorch.identity_loss(value, "sum")

    model = poptorch.trainingModel(Function(forward, layer=nn.Linear(2, 2)))

    with pytest.raises(poptorch.Error, match=r"poptorch.for_loop\(\) is only supported in inference"):
        model(torch.ones(1, 2))


# -- cond --------------------------------------------------------------------------------------------------------------


def _branch(poptorch):
    def forward(_, condition, x, y):
        return poptorch.cond(condition, lambda a, b: a + b, [x, y], lambda a: a * 10, [x])

    return forward


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.float16])
def test_the_branch_is_chosen_at_each_execution(poptorch, dtype):
    model = poptorch.inferenceModel(Function(_branch(poptorch)))
    x, y = torch.ones(2), torch.full((2,), 4.0)

    taken = model(torch.tensor([1]).to(dtype), x, y)
    not_taken = model(torch.tensor([0]).to(dtype), x, y)

    assert torch.equal(taken[0], torch.full((2,), 5.0))
    assert torch.equal(not_taken[0], torch.full((2,), 10.0))
    assert type(taken) is list


def test_each_micro_batch_chooses_its_branch(poptorch, infer):
    def forward(_, x):
        return poptorch.cond(x.sum() > 0, lambda a: a * 2, [x], lambda a: -a, [x])

    x = torch.tensor([[1.0], [-1.0], [3.0], [-4.0]])

    (result,) = infer(forward, x, options=poptorch.Options().deviceIterations(4))

    assert result.flatten().tolist() == [2, 1, 6, 4]


def test_on_the_cpu_a_branch_is_python_s_if(poptorch):
    calls = []

    result = poptorch.cond(
        torch.tensor([0]), lambda: calls.append("then"), [], lambda x: calls.append("else") or x, [torch.ones(1)]
    )

    assert calls == ["else"]
    assert torch.equal(result[0], torch.ones(1))


def test_both_bodies_are_traced_once(poptorch, infer):
    calls = []

    def body(name):
        return lambda x: calls.append(name) or x + 1

    infer(lambda _, x: poptorch.cond(x.sum() > 0, body("then"), [x], body("else"), [x]), torch.ones(2))

    assert calls == ["then", "else"]


def test_values_of_a_branch_are_copies(poptorch, infer):
    x, y = torch.ones(2), torch.full((2,), 5.0)

    def forward(_, x, y):
        results = poptorch.cond(x.sum() > 0, lambda a: a.add_(1) + y.mul_(2), [x], lambda a: a, [x])
        return results, x, y

    (result,), x_after, y_after = infer(forward, x, y)

    assert torch.equal(result, torch.full((2,), 12.0))
    assert torch.equal(x_after, torch.ones(2))
    assert torch.equal(y_after, torch.full((2,), 5.0))
    assert torch.equal(x, torch.ones(2))
    assert torch.equal(y, torch.full((2,), 5.0))


def test_a_branch_that_writes_around_itself_may_not_use_a_view_as_well(poptorch, infer):
    def forward(_, x):
        row = x[0]

        def then(a):
            row.add_(1)
            return a + x

        return poptorch.cond(x.sum() > 0, then, [x], lambda a: a, [x])

    with pytest.raises(poptorch.Error, match="branch writes to a tensor around it of which it also uses a view"):
        infer(forward, torch.ones(2, 2))


def test_branches_read_parameters(poptorch, infer):
    layers = nn.Linear(2, 3), nn.Linear(2, 3)
    x = torch.randn(4, 2)

    def forward(module, x):
        return poptorch.cond(x.sum() < 1e9, lambda a: module.one(a), [x], lambda a: module.two(a), [x])

    (result,) = infer(forward, x, one=layers[0], two=layers[1])

    torch.testing.assert_close(result, layers[0](x))


def test_branches_nest_in_loops_and_each_other(poptorch, infer):
    def forward(_, x):
        def body(value, index):
            (value,) = poptorch.cond(
                index % 2 == 0,
                lambda v: poptorch.cond(index > 0, lambda u: u + 100, [v], lambda u: u + 1, [v]),
                [value],
                lambda v: v * 3,
                [value],
            )
            return value, index + 1

        return poptorch.for_loop(3, body, [x, torch.zeros(1, dtype=torch.int32, device=x.device)])

    result, _ = infer(forward, torch.zeros(1))

    assert result.item() == (0 + 1) * 3 + 100


def test_a_condition_that_is_no_tensor_is_decided_at_compilation(poptorch, infer):
    (result,) = infer(lambda _, x: poptorch.cond(False, lambda a: a, [x], lambda a: a + 1, [x]), torch.ones(1))

    assert result.item() == 2


@pytest.mark.parametrize(
    ("then_body", "else_body", "message"),
    [
        (lambda a: (a, a), lambda a: a, "then_body returns 2 and else_body 1"),
        (lambda a: a, lambda a: a.sum(), r"float32\[2\] of then_body and float32\[\] of else_body"),
        (lambda a: a.half(), lambda a: a, r"float16\[2\] of then_body and float32\[2\] of else_body"),
    ],
)
def test_branches_must_return_the_same_form(poptorch, infer, then_body, else_body, message):
    with pytest.raises(poptorch.Error, match=message):
        infer(lambda _, x: poptorch.cond(x.sum() > 0, then_body, [x], else_body, [x]), torch.ones(2))


def test_a_condition_has_one_element(poptorch, infer):
    with pytest.raises(poptorch.Error, match="must have a single element"):
        infer(lambda _, x: poptorch.cond(x > 0, lambda a: a, [x], lambda a: a, [x]), torch.ones(2))


@pytest.mark.parametrize(("then_inputs", "else_inputs"), [(torch.ones(1), []), ([], (torch.ones(1),))])
def test_inputs_of_branches_must_be_lists(poptorch, then_inputs, else_inputs):
    with pytest.raises(
        ValueError,
        match=r"poptorch.cond expects then_inps and else_inps tensors to be a list of tensors. \(Object is not list\)",
    ):
        poptorch.cond(torch.tensor(True), lambda *a: a, then_inputs, lambda *a: a, else_inputs)


def test_inputs_of_branches_must_be_tensors(poptorch):
    with pytest.raises(ValueError, match=r"\(Object contained in list at index 0 is not torch.tensor\)"):
        poptorch.cond(torch.tensor(True), lambda a: a, [3], lambda a: a, [torch.ones(1)])


def test_branches_are_for_inference_only(poptorch):
    def forward(module, x):
        (value,) = poptorch.cond(x.sum() > 0, lambda v: module.layer(v), [x], lambda v: v, [x])
        return poptorch.identity_loss(value, "sum")

    model = poptorch.trainingModel(Function(forward, layer=nn.Linear(2, 2)))

    with pytest.raises(poptorch.Error, match=r"poptorch.cond\(\) is only supported in inference"):
        model(torch.ones(1, 2))


# -- the operators themselves ------------------------------------------------------------------------------------------


def test_the_operators_of_a_loop_may_be_called_directly(infer):
    library = torch.ops.poptorch

    def forward(_, x):
        library.start_for_loop([x])
        return library.end_for_loop([x + 1], [x], 5)

    (result,) = infer(forward, torch.zeros(2))

    assert torch.equal(result, torch.full((2,), 5.0))


@pytest.mark.parametrize(
    "forward",
    [
        lambda _, x: torch.ops.poptorch.end_for_loop([x], [x], 5),
        lambda _, x: torch.ops.poptorch.end_if_block([x], x),
        lambda _, x: torch.ops.poptorch.start_else_block([x]),
    ],
)
def test_an_end_without_a_beginning_is_refused(poptorch, infer, forward):
    with pytest.raises(poptorch.Error, match="ends what nothing began"):
        infer(forward, torch.ones(1))


def test_a_beginning_without_an_end_is_refused(poptorch, infer):
    with pytest.raises(poptorch.Error, match="has a beginning and no end"):
        infer(lambda _, x: torch.ops.poptorch.start_for_loop([x]) or x, torch.ones(1))
