"""What IPUs do and this CPU does not: each test states the hardware's behaviour, and is expected to fail here.

The page docs/simulator-differences.md says of each what the simulator does instead. A test that passes one day fails
the suite: then the difference is gone, and so is its place on the page.
"""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting.simulator as simulator


def different(reason, raises=AssertionError):
    return pytest.mark.xfail(strict=True, raises=raises, reason=reason)


class Calling(nn.Module):
    """A model that calls a function of its inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def on_device(function, *inputs, options=None):
    return simulator.inferenceModel(Calling(function), options)(*inputs)


@pytest.fixture
def hardware(monkeypatch):
    """Let the simulated devices count as hardware, as they do under `porting run`."""
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")


# -- the machine ---------------------------------------------------------------------------------------------------


@different("there is no IPU")
def test_a_machine_with_an_ipu_has_hardware(monkeypatch):
    monkeypatch.delenv("PORTING_SIM_HARDWARE", raising=False)

    assert simulator.ipuHardwareIsAvailable()


@different("memory of tiles is not modelled", raises=pytest.fail.Exception)
def test_a_model_that_is_larger_than_the_memory_of_the_tiles_does_not_compile(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")  # four tiles of 624 KiB
    executor = simulator.inferenceModel(nn.Linear(1024, 1024))

    with pytest.raises(simulator.Error, match="Out of memory"):
        executor(torch.ones(1, 1024))


@different("cycles are the time of the call on this CPU at the IPU's clock")
def test_cycles_do_not_depend_on_how_busy_the_host_is(hardware, monkeypatch):
    executor = simulator.inferenceModel(nn.Linear(2, 2), simulator.Options().logCycleCount(True))
    monkeypatch.setattr("porting.simulator._device.session.perf_counter", itertools.count(0.0, 0.01).__next__)
    executor(torch.ones(1, 2))
    at_ease = executor.cycleCount()
    monkeypatch.setattr("porting.simulator._device.session.perf_counter", itertools.count(0.0, 0.02).__next__)

    executor(torch.ones(1, 2))

    assert executor.cycleCount() < 1.5 * at_ease


@different("the time of a call is shared out evenly over its steps")
def test_each_step_of_a_call_has_a_time_of_its_own():
    executor = simulator.inferenceModel(nn.Linear(2, 2), simulator.Options().deviceIterations(8))

    executor(torch.ones(8, 2))

    shortest, longest, _mean = executor.getComputeLatency()
    assert longest - shortest > 1e-8


@different("every process compiles, and reading the cache would not be quicker than tracing")
def test_a_model_in_the_cache_is_loaded_instead_of_compiled(tmp_path):
    seconds = []
    for _ in range(2):
        options = simulator.Options().enableExecutableCaching(str(tmp_path))
        executor = simulator.inferenceModel(nn.Linear(2, 2), options)
        executor.compile(torch.ones(1, 2))
        seconds.append(executor.compilationTime().total_seconds())

    assert seconds[1] < 0.5 * seconds[0]


@different("a loader never has more processes than this machine has cores")
def test_a_loader_has_as_many_processes_as_asked_for():
    dataset = torch.utils.data.TensorDataset(torch.ones(4))

    loader = simulator.DataLoader(simulator.Options(), dataset, num_workers=4096)

    assert loader.num_workers == 4096


@different("there is nothing to measure")
def test_a_profile_holds_measurements(tmp_path):
    options = simulator.Options().enableProfiling(str(tmp_path)).modelName("model")
    executor = simulator.inferenceModel(nn.Linear(2, 2), options)
    executor(torch.ones(1, 2))

    executor.destroy()
    del executor

    assert (tmp_path / "model" / "profile.pop").stat().st_size > 10_000


# -- the compiled program ------------------------------------------------------------------------------------------


@different("the graph is that of the user's operators, without what PopART adds")
def test_the_compiled_graph_has_the_exchange_between_replicas():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x):
            return simulator.identity_loss(self.linear(x), "sum")

    executor = simulator.trainingModel(Model(), simulator.Options().replicationFactor(2))
    executor.compile(torch.ones(2, 2))

    types = [operator["type"] for operator in json.loads(executor._debugGetPopartIR())["maingraph"]]
    assert any(kind.startswith("ReplicatedAllReduce") for kind in types)


@different("files hold the graph of the step, not a program for tiles")
def test_a_saved_executable_is_one_for_ipus(tmp_path):
    executor = simulator.inferenceModel(nn.Linear(2, 2))
    executor.compile(torch.ones(1, 2))

    executor.save(str(tmp_path / "model.poptorch"))

    assert b"PopEF" in (tmp_path / "model.poptorch").read_bytes()


@different("operators compiled for IPUs cannot run; Python ones take their place", raises=simulator.Error)
def test_operators_of_a_compiled_library_run():
    x = torch.full((2,), 3.0)

    outputs = on_device(lambda x: simulator.custom_op([x], "Cube", "com.example", 1, example_outputs=[x]), x)

    assert outputs[0].tolist() == [27.0, 27.0]


@different("integers are sent with the weights")
def test_a_buffer_of_integers_is_part_of_the_program():
    model = Calling(lambda x: x + model.shift)
    model.register_buffer("shift", torch.tensor([1]))
    executor = simulator.inferenceModel(model)
    executor(torch.zeros(1))

    model.shift += 1
    executor.copyWeightsToDevice()

    assert executor(torch.zeros(1)).item() == 1.0


# -- numbers -------------------------------------------------------------------------------------------------------


@different("the device's random numbers are torch's")
def test_random_numbers_are_the_devices_own():
    on_ipu = on_device(lambda x: x + torch.rand(4), torch.zeros(4), options=simulator.Options().randomSeed(7))

    torch.manual_seed(7)
    assert not torch.equal(on_ipu, torch.rand(4))


@different("GELU is exact")
def test_gelu_is_an_approximation():
    x = torch.linspace(-4, 4, 401)

    assert (on_device(F.gelu, x) - F.gelu(x)).abs().max() > 1e-5


@different("the bins are torch's")
def test_adaptive_pooling_to_a_size_that_does_not_divide_has_other_bins():
    image = torch.arange(25.0).reshape(1, 1, 5, 5) ** 2

    def pool(x):
        return F.adaptive_avg_pool2d(x, 3)

    assert not torch.allclose(on_device(pool, image), pool(image))


@different("sums are made in the order of this CPU's kernels")
def test_sums_are_rounded_in_the_order_of_the_tiles():
    a, b = torch.rand(8, 4096), torch.rand(4096, 8)

    assert not torch.equal(on_device(torch.matmul, a, b), a @ b)


@different("partial sums are always float32")
def test_half_precision_partials_round_more():
    a, b = torch.rand(4, 4096).half(), torch.rand(4096, 4).half()
    options = simulator.Options()
    options.Precision.setPartialsType(torch.half)

    assert not torch.equal(on_device(torch.matmul, a, b, options=options), on_device(torch.matmul, a, b))


@different("activations are rounded to nearest")
def test_stochastic_rounding_keeps_small_summands_on_average():
    options = simulator.Options()
    options.Precision.enableStochasticRounding(True)

    total = on_device(lambda x: x + 0.0002, torch.ones(4000).half(), options=options)

    assert total.float().mean() > 1.0001
