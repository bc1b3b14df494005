"""What the programs of a step are: which there are, what they take and write, and which steps have none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import simulator as poptorch
from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Variant
from porting.engines.calls.step_anchors import StepObserver
from porting.engines.compiled import step_program
from porting.engines.compiled.call_layout import CallLayout
from porting.engines.compiled.step_program import build_programs
from porting.engines.compiled.why_replay import NotCompilable
from tests.engines.interpreted_programs import interpret_programs

DEFAULT = Variant()
FUSED = Variant(fused_update=True)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


class Body(nn.Module):
    """`forward` is `function(module, *inputs)`; the parameter has shape (3,)."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def training(settings, model=None, *, variant=DEFAULT, **plan):
    """Return the graph of a model that is trained, and a request for it."""
    model = mlp() if model is None else model
    graph = capture_step(model, [torch.ones(4, 3), torch.ones(4, 2)], loss=F.mse_loss, mode="training")
    names = tuple(info.name for info in graph.parameters)
    return graph, BuildRequest(CallPlan(**plan), (settings,), (names,), variant)


def inference(function, *inputs):
    """Return the graph of a function of a weight and inputs."""
    return capture_step(Body(function), inputs or [torch.ones(2, 3)], mode="inference"), BuildRequest(CallPlan())


def targets(program):
    return [node.target for node in program.module.graph.nodes if node.op == "call_function"]


# -- roles -------------------------------------------------------------------------------------------------------------


def test_training_is_one_program(settings):
    programs = build_programs(*training(settings("ADAM")))

    assert list(programs.by_role) == ["step"]


def test_inference_is_one_program():
    programs = build_programs(*inference(lambda module, x: x * module.weight))

    assert list(programs.by_role) == ["forward"]


def test_a_step_that_is_too_large_to_write_out_is_two_programs(settings, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)

    programs = build_programs(*training(settings("ADAM"), accumulation=4, variant=Variant(micro_batches_at_once=1)))

    assert list(programs.by_role) == ["accumulate", "update"]


def test_a_single_micro_batch_is_never_too_large(settings, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)

    programs = build_programs(*training(settings("ADAM")))

    assert list(programs.by_role) == ["step"]


def test_with_a_fused_update_the_program_ends_in_the_gradients(settings):
    programs = build_programs(*training(settings("ADAM"), variant=FUSED, accumulation=4))

    (program,) = programs.by_role.values()
    assert program.role == programs.layout.role_of_runs == "gradients"
    assert program.num_results == programs.layout.num_results + 4
    assert program.written == ()


def test_a_large_step_with_a_fused_update_adds_up_its_gradients(settings, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)

    programs = build_programs(
        *training(settings("ADAM"), variant=replace(FUSED, micro_batches_at_once=1), accumulation=4)
    )

    assert list(programs.by_role) == ["accumulate"]


@pytest.mark.parametrize(
    ("iterations", "wanted", "expected"), [(6, 4, 3), (6, 6, 6), (7, 4, 1), (6, 100, 6), (1, 8, 1)]
)
def test_a_program_does_a_number_of_steps_that_divides_the_call(settings, iterations, wanted, expected):
    request = training(settings(), iterations=iterations, variant=Variant(steps_per_run=wanted))

    assert build_programs(*request).layout.steps_per_run == expected


def test_steps_that_are_too_many_operators_are_fewer_for_a_program(settings, monkeypatch):
    request = training(settings(), iterations=8, variant=Variant(steps_per_run=8))
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", build_programs(*request).by_role["step"].num_operators // 3)

    assert build_programs(*request).layout.steps_per_run == 2


def test_micro_batches_run_at_once_where_that_changes_nothing(settings):
    at_once = build_programs(*training(settings(), accumulation=4))
    one_by_one = build_programs(*training(settings(), accumulation=4, variant=Variant(micro_batches_at_once=1)))

    assert at_once.by_role["step"].num_operators < one_by_one.by_role["step"].num_operators


# -- programs ----------------------------------------------------------------------------------------------------------


def test_a_program_is_flat(settings):
    (program,) = build_programs(*training(settings("LAMB", max_grad_norm=1.0))).by_role.values()

    others = [target for target in targets(program) if not isinstance(target, torch._ops.OpOverload)]
    assert others == []
    assert all(target.namespace == "aten" for target in targets(program))


def test_a_program_says_what_it_writes_to(settings):
    (program,) = build_programs(*training(settings("SGD2", momentum=0.9))).by_role.values()

    names = {program.arguments[index].name for index in program.written}
    parameters = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert names == {f"parameter::{name}" for name in parameters} | {f"slot:Accl1:{name}" for name in parameters}


def test_weights_are_stored_after_all_new_values_are_known(settings):
    (program,) = build_programs(*training(settings())).by_role.values()

    assert targets(program)[-4:] == [torch.ops.aten.copy_.default] * 4


def test_arguments_that_nothing_needs_are_left_out():
    (program,) = build_programs(*inference(lambda module, x: x * 2)).by_role.values()

    assert [spec.name for spec in program.arguments] == ["input:0:"]


def test_statistics_are_updated_even_if_nobody_needs_the_normalised_values():
    model = Body(lambda module, x: (module.norm(x), F.mse_loss(x * 2, x))[1])
    model.norm = nn.BatchNorm1d(3)
    graph = capture_step(model, [torch.randn(4, 3)], mode="training")
    (program,) = build_programs(graph, BuildRequest(CallPlan())).by_role.values()

    names = {program.arguments[index].name for index in program.written}
    assert names == {f"buffer:0:norm.{name}" for name in ("running_mean", "running_var")}


def test_a_program_runs_without_a_compiler():
    programs = build_programs(*inference(lambda module, x: x * module.weight))
    arguments = {"parameter::weight": torch.tensor([1.0, 2.0, 3.0]), "input:0:": torch.ones(2, 3)}

    (result,) = interpret_programs(programs)["forward"](
        [arguments[spec.name] for spec in programs.by_role["forward"].arguments]
    )

    assert result.tolist() == [[1.0, 2.0, 3.0]] * 2


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, False), (torch.float16, True)])
def test_a_program_says_whether_it_rounds_to_halves(dtype, expected):
    graph = capture_step(nn.Linear(3, 2).to(dtype), [torch.ones(2, 3, dtype=dtype)], mode="inference")

    (program,) = build_programs(graph, BuildRequest(CallPlan())).by_role.values()

    assert program.has_halves is expected


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("fused_update", [False, True])
def test_a_layout_travels_as_text(settings, accumulation, fused_update, monkeypatch):
    monkeypatch.setattr(step_program, "_MAX_OPERATORS", 10)
    variant = Variant(micro_batches_at_once=1, fused_update=fused_update)
    layout = build_programs(*training(settings("ADAM"), accumulation=accumulation, variant=variant)).layout

    assert CallLayout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout


@pytest.mark.parametrize(("length", "is_written_out"), [(4, True), (100, False)])
def test_a_short_recurrence_consists_of_its_cells(length, is_written_out):
    graph = capture_step(nn.LSTM(3, 2), [torch.ones(length, 1, 3)], mode="inference")

    (program,) = build_programs(graph, BuildRequest(CallPlan())).by_role.values()

    assert (torch.ops.aten.tanh.default in targets(program)) is is_written_out


# -- loops and branches ------------------------------------------------------------------------------------------------


def run(graph, request, *inputs):
    """Run an interpreted program of inference on the inputs and a weight."""
    programs = build_programs(graph, request)
    (program,) = programs.by_role.values()
    known = {f"input:{index}:": tensor for index, tensor in enumerate(inputs)}
    known["parameter::weight"] = torch.tensor([1.0, 2.0, 3.0])
    known.update({f"constant:{index}:": value for index, value in enumerate(graph.constant_values)})
    return interpret_programs(programs)[program.role]([known[spec.name] for spec in program.arguments])


def test_a_loop_is_written_out():
    def triple(module, x):
        return poptorch.for_loop(3, lambda value: value + x * module.weight, [x * 0])[0]

    x = torch.arange(6.0).reshape(2, 3)
    (result,) = run(*inference(triple, x), x)

    assert torch.equal(result, 3 * x * torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_a_branch_is_selected_by_its_condition(value):
    def choose(_module, x):
        (result,) = poptorch.cond(x.sum() > 0, lambda t: t * 2, [x], lambda t: t - 1, [x])
        return result

    x = torch.full((2, 3), value)
    (result,) = run(*inference(choose, x), x)

    assert torch.equal(result, x * 2 if value > 0 else x - 1)


def test_slices_that_begin_where_a_tensor_says_are_traced():
    def cut(_module, x, start):
        return poptorch.dynamic_slice(x, 1, start, 1, 1)

    x, start = torch.arange(6.0).reshape(2, 3), torch.tensor([2], dtype=torch.int32)
    (result,) = run(*inference(cut, x, start), x, start)

    assert torch.equal(result, x[:, 2:])


# -- steps that need the replay engine ---------------------------------------------------------------------------------


def reason(graph, request):
    with pytest.raises(NotCompilable) as caught:
        build_programs(graph, request)
    return caught.value.reason


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"exchange": lambda gradients: None, "processes": 2}, "between processes"),
        ({"adapts_loss_scaling": True}, "automatic loss scaling"),
        ({"rounds_at_random": True}, "stochastic rounding"),
        ({"checks_floats": True}, "floating-point checks"),
    ],
)
def test_plans_that_need_replay_say_why(settings, plan, expected):
    assert expected in reason(*training(settings(), **plan))


def test_steps_that_are_watched_need_replay(settings):
    graph, _request = training(settings())

    assert "anchors" in reason(graph, BuildRequest(CallPlan(), observer=StepObserver([])))


def test_an_update_that_torch_has_no_fused_kernel_for_is_not_fused(settings):
    assert reason(*training(settings("LAMB"), variant=FUSED)) == "torch has no fused kernel for the update of LAMB"


def test_there_is_no_update_to_fuse_in_inference():
    graph, request = inference(lambda module, x: x * module.weight)

    assert reason(graph, replace(request, variant=FUSED)).startswith("nothing is trained")


def test_a_graph_that_prints_needs_replay():
    def show(_module, x):
        return poptorch.ipu_print_tensor(x * 2, "x")

    assert reason(*inference(show)) == "`ipu_print_tensor.default` runs on the host"


def test_a_graph_that_calls_the_host_needs_replay():
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    layer = poptorch.CPU(Twice(), "twice")

    assert reason(*inference(lambda _module, x: layer(x))) == "`call_cpu_op` calls the host"


def test_a_branch_whose_operators_may_fail_needs_replay():
    def choose(_module, x, index):
        (result,) = poptorch.cond(x.sum() > 0, lambda t: t[index], [x], lambda t: t - 1, [x])
        return result

    assert "only if the branch is taken" in reason(*inference(choose, torch.ones(2, 3), torch.tensor([0, 1])))


def test_a_shape_that_depends_on_values_needs_replay(monkeypatch):
    graph, request = inference(lambda module, x: x * module.weight)
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.target, node.args = torch.ops.aten.masked_select.default, (node.args[0], node.args[0])

    assert reason(graph, request).startswith("the step cannot be traced")


def test_a_step_that_computes_nothing_needs_replay():
    assert reason(*inference(lambda module, x: None)) == "the step computes nothing"
