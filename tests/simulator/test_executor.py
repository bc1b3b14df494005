"""The executor: construction, the flow of a call, its state, and what happens when something fails."""

from __future__ import annotations

import gc
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

OFFLINE = "Trying to run a model on an offline device"
NOT_COMPILED = "Model has not been compiled or has been destroyed."


class Double(nn.Module):
    def forward(self, x):
        return x * 2


class Fails(nn.Module):
    """Adds its weight to the input, after it raised `error` while there is one."""

    def __init__(self, error=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.error = error

    def forward(self, x):
        if self.error is not None:
            raise self.error
        return x + self.weight


class Operators(TorchDispatchMode):
    """Lists the operators that run while it is entered."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class PickRow(nn.Module):
    """Scores one row of a table; an index outside the table fails in the kernel, not in the trace."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 2)

    def forward(self, index):
        return nn.functional.mse_loss(self.table(index), torch.zeros(1, 2, device="ipu"))


# -- construction


def test_options_of_another_type_are_refused(poptorch):
    with pytest.raises(poptorch.Error, match=r"Invalid type: 'options' is of type .*str.* \(Expected poptorch.Options"):
        poptorch.inferenceModel(Double(), options="fast")


def test_the_users_options_are_frozen(poptorch):
    options = poptorch.Options()

    poptorch.inferenceModel(Double(), options)

    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)


def test_the_executors_options_are_a_frozen_copy(poptorch):
    options = poptorch.Options()

    executor = poptorch.inferenceModel(Double(), options)

    assert executor.options is not options
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        executor.options.deviceIterations(2)


def test_options_can_be_used_for_several_executors(poptorch):
    options = poptorch.Options().deviceIterations(2)
    executors = [poptorch.inferenceModel(Double(), options) for _ in range(2)]

    results = [executor(torch.ones(4)) for executor in executors]

    assert torch.equal(results[0], results[1])


def test_training_returns_the_final_output_by_default(poptorch, regression):
    options = poptorch.Options()

    executor = poptorch.trainingModel(regression, options)

    assert executor.options.output_mode == poptorch.OutputMode.Final
    assert options.defaultOutputMode()


def test_inference_returns_all_outputs_by_default(poptorch):
    executor = poptorch.inferenceModel(Double())

    assert executor.options.output_mode == poptorch.OutputMode.All


def test_gradient_accumulation_is_refused_for_inference(poptorch):
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)

    with pytest.raises(poptorch.Error, match=r"gradientAccumulation to 1 .*Use poptorch.Options\(\).deviceIterations"):
        poptorch.inferenceModel(Double(), options)


def test_sharded_execution_is_not_told_to_use_device_iterations(poptorch):
    options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
    options.Training.gradientAccumulation(2)

    with pytest.raises(poptorch.Error, match=r"running a poptorch.inferenceModel\(\)\.$"):
        poptorch.inferenceModel(Double(), options)


def test_an_optimizer_for_inference_is_refused(poptorch):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)

    with pytest.raises(AssertionError):
        poptorch.PoplarExecutor(Double(), None, False, "", optimizer=optimizer)


# -- compiling and calling


def test_the_first_call_compiles(poptorch):
    executor = poptorch.inferenceModel(Double())

    before = executor.isCompiled()
    executor(torch.ones(1))

    assert (before, executor.isCompiled()) == (False, True)


def test_compile_changes_no_weight(poptorch, regression, batch):
    before = regression.linear.weight.detach().clone()
    executor = poptorch.trainingModel(regression)

    executor.compile(*batch)
    executor.copyWeightsToHost()

    assert torch.equal(regression.linear.weight, before)


def test_a_call_after_compile_does_not_compile_again(poptorch):
    model = Double()
    traces = []
    model.register_forward_hook(lambda *_: traces.append(1))
    executor = poptorch.inferenceModel(model)

    executor.compile(torch.ones(1))
    executor(torch.ones(1))

    assert len(traces) == 1


def test_compiling_twice_is_ignored_with_a_warning(poptorch, caplog):
    executor = poptorch.inferenceModel(Double())
    executor.compile(torch.ones(1))

    executor.compile(torch.ones(1))

    assert "Call to compile() ignored: the executable is already compiled" in caplog.text


def test_an_offline_device_runs_nothing(poptorch):
    options = poptorch.Options().connectionType(poptorch.ConnectionType.Never)
    executor = poptorch.inferenceModel(Double(), options)

    with pytest.raises(AssertionError, match=OFFLINE):
        executor("arguments are not looked at", 1, 2)


def test_outputs_are_not_part_of_a_gradient_graph(poptorch, regression, batch):
    output, loss = poptorch.trainingModel(regression)(*batch)

    assert not output.requires_grad
    assert not loss.requires_grad


def test_outputs_are_new_tensors_in_each_call(poptorch):
    executor = poptorch.inferenceModel(Double())
    first = executor(torch.ones(2))

    executor(torch.zeros(2))

    assert first.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("wrap", ["trainingModel", "inferenceModel"])
def test_backward_of_an_output_is_refused(poptorch, regression, batch, wrap):
    _, loss = getattr(poptorch, wrap)(regression)(*batch)

    with pytest.raises(
        poptorch.Error, match=r"backward\(\) cannot be called explicitly on outputs of a PopTorch model"
    ):
        loss.backward()


def test_a_tensor_on_another_device_is_refused(poptorch):
    executor = poptorch.inferenceModel(Double())

    with pytest.raises(poptorch.Error, match="Inputs must be on the CPU"):
        executor(torch.ones(2, device="meta"))


def test_other_arguments_than_compiled_for_leave_the_executor_usable(poptorch):
    executor = poptorch.inferenceModel(Double())
    executor(torch.ones(2))

    with pytest.raises(poptorch.Error, match=r"expected torch.Size\(\[2\]\) but got torch.Size\(\[3\]\)"):
        executor(torch.ones(3))

    assert executor(torch.ones(2)).tolist() == [2.0, 2.0]


def test_non_contiguous_inputs_are_converted_with_one_warning(poptorch, caplog):
    executor = poptorch.inferenceModel(Double())
    x = torch.arange(6.0).reshape(2, 3).t()

    results = [executor(x), executor(x)]

    assert torch.equal(results[1], 2 * x)
    assert caplog.text.count("At least one input tensor is not contiguous") == 1


def test_non_contiguous_inputs_are_contiguous_in_forward(poptorch):
    class View(nn.Module):
        def forward(self, x):
            return x.view(-1)

    x = torch.arange(6.0).reshape(2, 3).t()

    result = poptorch.inferenceModel(View())(x)

    assert torch.equal(result, x.reshape(-1))


# -- attributes


def test_attributes_come_from_the_users_model(poptorch, regression):
    executor = poptorch.inferenceModel(regression)

    assert executor.linear is regression.linear
    assert executor.training


def test_an_unknown_attribute_is_an_attribute_error(poptorch, regression):
    executor = poptorch.inferenceModel(regression)

    with pytest.raises(AttributeError, match="'Regression' object has no attribute 'missing'"):
        executor.missing  # noqa: B018


def test_a_parameter_of_the_top_module_is_read_through_a_proxy(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(3, 2))

    assert not isinstance(executor.weight, torch.Tensor)
    assert executor.weight.shape == (2, 3)


def test_a_parameter_further_down_is_the_parameter(poptorch, regression):
    executor = poptorch.inferenceModel(regression)

    assert executor.linear.weight is regression.linear.weight


def test_attributes_of_an_executor_can_be_assigned(poptorch, regression):
    executor = poptorch.inferenceModel(regression)

    executor.note = "mine"

    assert executor.note == "mine"
    assert not hasattr(regression, "note")


def test_a_training_executors_model_is_the_users_object(poptorch, regression):
    assert poptorch.trainingModel(regression).model is regression


def test_an_executor_prints_as_its_model(poptorch):
    executor = poptorch.inferenceModel(nn.Sequential(nn.Linear(1, 2), nn.ReLU()))

    assert repr(executor) == repr(executor.model)


def test_moving_an_executor_gives_the_bare_module_with_a_warning(poptorch, caplog):
    model = Double()
    executor = poptorch.inferenceModel(model)

    moved = executor.to("cpu")

    assert type(moved) is Double
    assert "what it returns runs on the host, not on the device" in caplog.text


def test_an_uncompiled_inference_executor_can_be_saved(poptorch, tmp_path):
    executor = poptorch.inferenceModel(nn.Linear(2, 2))

    torch.save(executor, tmp_path / "executor.pt")
    loaded = torch.load(tmp_path / "executor.pt", weights_only=False)

    assert torch.equal(loaded(torch.ones(1, 2)), executor(torch.ones(1, 2)))


def test_a_compiled_executor_says_why_it_cannot_be_pickled(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(2, 2))
    executor(torch.ones(1, 2))

    with pytest.raises(TypeError, match="a compiled executor, or one for training, cannot be pickled"):
        pickle.dumps(executor)


# -- measurements


def test_cycles_are_not_counted_without_the_option(poptorch):
    executor = poptorch.inferenceModel(Double())

    with pytest.raises(poptorch.Error, match="Please set option logCycleCount to True to enable."):
        executor.cycleCount()


def test_cycles_are_unknown_before_a_run(poptorch):
    executor = poptorch.inferenceModel(Double(), poptorch.Options().logCycleCount(True))
    executor.compile(torch.ones(1))

    with pytest.raises(poptorch.Error, match="Please run the model at least once before obtaining cycle count."):
        executor.cycleCount()


def test_counting_cycles_needs_hardware(poptorch):
    executor = poptorch.inferenceModel(Double(), poptorch.Options().logCycleCount(True))

    with pytest.raises(poptorch.Error, match="Cycle count logging is only supported on actual IPU hardware."):
        executor(torch.ones(1))


@pytest.mark.parametrize("show", [True, False])
def test_compilation_time_is_unknown_before_compiling(poptorch, show):
    executor = poptorch.inferenceModel(Double(), poptorch.Options().showCompilationProgressBar(show))

    with pytest.raises(poptorch.Error, match="Please compile the model before obtaining compilation time."):
        executor.compilationTime()


def test_compilation_time_needs_the_progress_bar(poptorch):
    executor = poptorch.inferenceModel(Double(), poptorch.Options().showCompilationProgressBar(False))
    executor.compile(torch.ones(1))

    with pytest.raises(poptorch.Error, match="Please set showCompilationProgressBar option"):
        executor.compilationTime()


def test_compilation_time_is_that_of_the_last_compilation(poptorch):
    executor = poptorch.inferenceModel(Double())
    executor.compile(torch.ones(1))

    assert executor.compilationTime().total_seconds() > 0


def test_a_compilation_is_one_line_in_a_log_file(poptorch, capsys):
    poptorch.inferenceModel(Double()).compile(torch.ones(1))

    assert capsys.readouterr().err.splitlines() == ["Graph compilation: 100%|██████████| 100/100 [00:00]"]


# -- destroying


def test_a_destroyed_inference_executor_compiles_for_other_shapes(poptorch):
    executor = poptorch.inferenceModel(Double())
    executor(torch.ones(2))

    executor.destroy()

    assert executor(torch.ones(3, dtype=torch.int32)).tolist() == [2, 2, 2]


def test_destroying_an_executor_that_was_not_compiled_does_nothing(poptorch, regression):
    executor = poptorch.trainingModel(regression)

    executor.destroy()

    with pytest.raises(RuntimeError, match="Model has already been wrapped"):
        poptorch.trainingModel(regression)


@pytest.mark.parametrize("method", ["copyWeightsToHost", "copyWeightsToDevice", "attachToDevice", "detachFromDevice"])
def test_nothing_can_be_done_with_a_destroyed_executor(poptorch, method):
    executor = poptorch.inferenceModel(Double())
    executor(torch.ones(1))
    executor.destroy()

    with pytest.raises(poptorch.Error, match=NOT_COMPILED):
        getattr(executor, method)()


def test_a_destroyed_executor_is_neither_compiled_nor_attached(poptorch):
    executor = poptorch.inferenceModel(Double())
    executor(torch.ones(1))

    executor.destroy()

    assert not executor.isCompiled()
    assert not executor.isAttachedToDevice()


def test_a_training_executor_that_is_called_after_destroy_owns_its_model_again(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)
    executor.destroy()
    before = regression.linear.weight.detach().clone()

    executor(*batch)

    assert not torch.equal(regression.linear.weight, before)


def test_a_forgotten_executor_leaves_what_it_trained(poptorch, regression, batch):
    before = regression.linear.weight.detach().clone()
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    del executor
    gc.collect()

    assert not torch.equal(regression.linear.weight, before)


def test_a_forgotten_executor_leaves_the_model_wrapped(poptorch, regression):
    poptorch.trainingModel(regression)
    gc.collect()

    with pytest.raises(RuntimeError, match="Model has already been wrapped"):
        poptorch.trainingModel(regression)


def test_what_a_forgotten_executor_trained_is_not_lost_by_releasing_the_model(poptorch, regression, batch):
    before = regression.linear.weight.detach().clone()
    executor = poptorch.trainingModel(regression)
    executor(*batch)
    del executor
    gc.collect()

    regression.destroy()

    assert not torch.equal(regression.linear.weight, before)


def test_collecting_an_executor_runs_no_operator(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    with Operators() as operators:
        del executor
        gc.collect()

    assert operators.names == []


def test_at_the_end_of_the_interpreter_an_executor_looks_at_nothing(poptorch, regression, batch, monkeypatch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)
    # so it is with the names of a module by then
    monkeypatch.setattr("porting.simulator._device.session.DeviceSession.leave_weights_behind", None)

    assert executor.__del__(lambda: True) is None

    monkeypatch.undo()


def test_a_model_of_a_forgotten_executor_can_be_released(poptorch, regression, batch):
    poptorch.trainingModel(regression)
    gc.collect()

    regression.destroy()

    assert poptorch.trainingModel(regression)(*batch)[1].dim() == 0


# -- modes of the host


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_does_not_depend_on_the_hosts_gradient_mode(poptorch, regression, batch, mode):
    executor = poptorch.trainingModel(regression)

    with mode():
        losses = [executor(part * 1, batch[1])[1] for part in (batch[0], batch[0])]

    assert losses[1] < losses[0]
    assert executor(*batch)[1] < losses[1]


def test_runs_do_not_depend_on_the_hosts_autocast(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(2, 2))
    expected = executor(torch.ones(1, 2))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = executor(torch.ones(1, 2))

    assert torch.equal(result, expected)


# -- failures


def test_an_exception_of_forward_comes_through_unchanged(poptorch):
    error = KeyError("mine")

    with pytest.raises(KeyError) as caught:
        poptorch.inferenceModel(Fails(error))(torch.ones(1))

    assert caught.value is error


def test_a_shape_error_has_torchs_own_words(poptorch):
    with pytest.raises(RuntimeError) as eager:
        nn.Linear(3, 2)(torch.ones(1, 4))

    with pytest.raises(RuntimeError) as simulated:
        poptorch.inferenceModel(nn.Linear(3, 2))(torch.ones(1, 4))

    assert str(simulated.value) == str(eager.value)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_a_failure_in_forward_leaves_model_and_executor_usable(poptorch, error):
    model = Fails(error)
    executor = poptorch.inferenceModel(model)
    with pytest.raises(type(error)):
        executor(torch.ones(1))

    executor.model.error = None

    assert type(model.weight) is nn.Parameter
    assert not poptorch.isRunningOnIpu()
    assert executor(torch.ones(1)).item() == 2.0
    assert torch.ones(1).device.type == "cpu"


def test_a_failure_in_training_leaves_the_model_wrapped_with_its_own_tensors(poptorch):
    model = Fails(ValueError("mine"))
    weight = model.weight
    executor = poptorch.trainingModel(model)

    with pytest.raises(ValueError, match="mine"):
        executor(torch.ones(1))

    assert model.weight is weight
    assert isinstance(weight, executor.PoptorchParameter)


def test_a_failure_of_a_kernel_leaves_the_executor_usable(poptorch):
    torch.manual_seed(0)
    model = PickRow()
    executor = poptorch.trainingModel(model)
    executor.compile(torch.tensor([0]))

    with pytest.raises(IndexError):
        executor(torch.tensor([7]))

    assert executor(torch.tensor([1])).item() > executor(torch.tensor([1])).item()


def test_gradients_of_a_failed_call_are_forgotten(poptorch):
    torch.manual_seed(0)
    model = PickRow()
    before = model.table.weight.detach().clone()
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(model, options)
    with pytest.raises(IndexError):
        executor(torch.tensor([0, 7]))

    executor(torch.tensor([1, 1]))

    assert torch.equal(model.table.weight[0], before[0])


def test_iterations_before_a_failure_reach_the_host(poptorch):
    torch.manual_seed(0)
    model = PickRow()
    before = model.table.weight.detach().clone()
    executor = poptorch.trainingModel(model, poptorch.Options().deviceIterations(2))

    with pytest.raises(IndexError):
        executor(torch.tensor([0, 7]))

    assert not torch.equal(model.table.weight[0], before[0])


def test_a_capture_error_has_the_vendors_text_and_the_place(poptorch):
    class Reads(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Reads())(torch.ones(2))

    assert "aten::item is only supported in eager mode" in str(caught.value)
    assert "return x * x.sum().item()" in str(caught.value)
    assert caught.value.finding.code == "C001"


def test_one_model_is_compiled_at_a_time(poptorch):
    executors = [poptorch.inferenceModel(nn.Linear(4, 4)) for _ in range(4)]
    x = torch.ones(1, 4)
    threads = [threading.Thread(target=executor.compile, args=(x,)) for executor in executors]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(torch.equal(executor(x), executor.model(x)) for executor in executors)


def test_a_callable_that_is_no_module_is_refused_when_it_is_compiled(poptorch):
    executor = poptorch.inferenceModel(lambda x: x + 1)

    with pytest.raises(poptorch.Error, match=r"Only a torch.nn.Module can be compiled"):
        executor(torch.ones(1))


def test_too_many_ipus_are_refused(poptorch):
    options = poptorch.Options().replicationFactor(128)

    with pytest.raises(poptorch.Error, match=r"Too many IPUs requested \(128\)\. Experiments that need .*"):
        poptorch.inferenceModel(Double(), options)(torch.ones(128))


def test_nothing_is_warned_of_in_an_ordinary_run(poptorch, regression, batch, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poptorch.trainingModel(regression)(*batch)

    assert caplog.text == ""


def test_executable_caching_is_accepted(poptorch, tmp_path):
    executor = poptorch.inferenceModel(Double(), poptorch.Options().enableExecutableCaching(str(tmp_path)))

    assert executor(torch.ones(1)).item() == 2.0
