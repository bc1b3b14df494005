"""Executors on compiled engines: everything that an executor can do works as it does with replay."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting.diagnostics import OptionError

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
Y = torch.randn(8, 2, generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """A small regression with dropout and statistics, which returns its output and its loss."""

    def __init__(self):
        super().__init__()
        # without a bias before the normalisation: its gradient would be zero but for rounding
        first = nn.Linear(3, 6, bias=False)
        self.layers = nn.Sequential(first, nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 2))

    def forward(self, x, target=None):
        output = self.layers(x)
        return output if target is None else (output, nn.functional.mse_loss(output, target))


def options(engine, **settings):
    made = poptorch.Options().useEngine(engine, tuning_seconds=200.0)
    made.randomSeed(7)
    for name, value in settings.items():
        getattr(made, name)(value)
    return made


def make_executor(engine, optimizer=None, **settings):
    torch.manual_seed(0)
    model = Model()
    optimizer = optimizer or (lambda parameters: poptorch.optim.Adam(parameters, lr=0.01))
    return model, poptorch.trainingModel(model, options(engine, **settings), optimizer=optimizer(model.parameters()))


def assert_equal_models(one, other):
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.fixture(autouse=True)
def _engine(interpreted_engine):
    return interpreted_engine


def test_an_executor_trains_like_replay(interpreted_engine):
    models = {}
    for engine in ("replay", "interpreted"):
        models[engine], executor = make_executor(engine)
        losses = [float(executor(X, Y)[1]) for _ in range(5)]
        models[engine].losses = losses

    assert models["interpreted"].losses == pytest.approx(models["replay"].losses, rel=1e-5)
    assert_equal_models(models["interpreted"], models["replay"])
    assert interpreted_engine.calls == ["compile", "load"]


def test_the_executor_says_what_it_runs_on():
    _model, executor = make_executor("interpreted")

    executor.compile(X, Y)

    obtained = executor.device_session.compiled.obtained
    assert (obtained.choice.engine, obtained.origin) == ("interpreted", "compiled")
    assert executor._executable is obtained.executable


def test_an_inference_executor_follows_what_was_trained():
    results = {}
    for engine in ("replay", "interpreted"):
        model, executor = make_executor(engine)
        evaluated = poptorch.inferenceModel(model.eval(), options(engine))
        model.train()
        executor(X, Y)
        executor(X, Y)
        results[engine] = evaluated(X)
        assert evaluated.device_session.compiled.obtained.choice.engine == engine

    torch.testing.assert_close(results["interpreted"], results["replay"])


def test_a_new_learning_rate_needs_no_new_executable(interpreted_engine):
    models = {}
    for engine in ("replay", "interpreted"):
        models[engine], executor = make_executor(engine)
        executor(X, Y)
        executor.setOptimizer(poptorch.optim.Adam(models[engine].parameters(), lr=0.1))
        executor(X, Y)

    assert_equal_models(models["interpreted"], models["replay"])
    assert interpreted_engine.calls.count("compile") == 1


def test_a_detached_executor_goes_on_where_it_was():
    models = {}
    for engine in ("replay", "interpreted"):
        models[engine], executor = make_executor(engine)
        executor(X, Y)
        executor.detachFromDevice()
        with torch.no_grad():
            models[engine].layers[0].weight.mul_(2.0)
        executor.attachToDevice()
        executor(X, Y)

    assert_equal_models(models["interpreted"], models["replay"])


def test_a_destroyed_executor_compiles_again_and_finds_the_executable(interpreted_engine):
    model, executor = make_executor("interpreted")
    executor(X, Y)
    executor.destroy()

    again = poptorch.trainingModel(
        model, options("interpreted"), optimizer=poptorch.optim.Adam(model.parameters(), lr=0.01)
    )
    again(X, Y)

    assert again.device_session.compiled.obtained.origin == "hit"
    assert interpreted_engine.calls == ["compile", "load", "load"]


def test_a_saved_executor_is_loaded_with_its_engine(tmp_path):
    model, executor = make_executor("interpreted")
    executor.compile(X, Y)
    executor.save(str(tmp_path / "model.poptorch"))
    executor.destroy()

    loaded = poptorch.load(str(tmp_path / "model.poptorch"))
    loaded(X, Y)

    assert loaded.device_session.compiled.obtained.choice.engine == "interpreted"


def test_an_anchored_gradient_is_replayed_and_said_so():
    made = options("interpreted")
    made.anchorTensor("gradient", "Gradient___layers.0.weight")
    torch.manual_seed(0)
    model = Model()
    executor = poptorch.trainingModel(model, made, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))

    executor(X, Y)

    assert [finding.code for finding in executor.device_session.compiled.obtained.findings] == ["E003"]
    assert executor.getAnchoredTensor("gradient").shape == (6, 3)


def test_an_anchored_activation_does_not_keep_a_step_from_being_compiled():
    values = {}
    for engine in ("replay", "interpreted"):
        made = options(engine)
        made.anchorTensor("out", activation())
        torch.manual_seed(0)
        model = Model()
        executor = poptorch.trainingModel(model, made, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
        executor(X, Y)
        values[engine] = executor.getAnchoredTensor("out")
        assert executor.device_session.compiled.obtained.choice.engine == engine

    torch.testing.assert_close(values["interpreted"], values["replay"])


def activation():
    """Name a value within the forward pass."""
    _model, executor = make_executor("replay")
    executor.compile(X, Y)
    return next(name for name in executor.getTensorNames() if "Tanh" in name or "tanh" in name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"deviceIterations": 2},
        {"replicationFactor": 2, "broadcastBuffers": False},
        {"deviceIterations": 2, "outputMode": poptorch.OutputMode.All},
    ],
    ids=["iterations", "replicas", "all outputs"],
)
def test_calls_of_several_micro_batches_are_alike(settings):
    models = {}
    for engine in ("replay", "interpreted"):
        models[engine], executor = make_executor(engine, **settings)
        models[engine].output, models[engine].loss = executor(X, Y)
        executor(X, Y)

    torch.testing.assert_close(models["interpreted"].output, models["replay"].output)
    torch.testing.assert_close(models["interpreted"].loss, models["replay"].loss)
    assert_equal_models(models["interpreted"], models["replay"])


@pytest.mark.slow
def test_tuning_leaves_no_trace_in_what_is_trained(monkeypatch):
    monkeypatch.setattr("porting.engines.tuning.tuner.choose", lambda timings: list(timings)[-1])
    models, streams = {}, {}
    for engine in ("replay", "auto"):
        models[engine], executor = make_executor(engine)
        executor.compile(X, Y)
        streams[engine] = torch.get_rng_state()
        for _ in range(3):
            executor(X, Y)

    assert_equal_models(models["auto"], models["replay"])
    assert torch.equal(streams["auto"], streams["replay"])
    assert executor.device_session.compiled.obtained.tuning is not None


class Images(nn.Module):
    """A convolution, so that there is another memory format to choose."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 4, 3), nn.Linear(4, 2)

    def forward(self, images, target):
        output = self.last(torch.relu(self.conv(images)).mean((2, 3)))
        return output, nn.functional.mse_loss(output, target)


@pytest.mark.slow
def test_weights_and_optimizer_state_come_back_in_the_hosts_own_layout(monkeypatch):
    monkeypatch.setattr(
        "porting.engines.tuning.tuner.choose", lambda timings: next(v for v in timings if v.channels_last)
    )
    images, target = torch.randn(4, 2, 6, 6), torch.randn(4, 2)
    states = {}
    for engine in ("replay", "auto"):
        torch.manual_seed(0)
        model = Images()
        optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
        executor = poptorch.trainingModel(model, options(engine), optimizer=optimizer)
        executor.compile(images, target)
        executor(images, target)
        states[engine] = (model.state_dict(), optimizer.state_dict()["ipu_state"])
        weight = executor.device_session.compiled.state.parameters["conv.weight"]
        assert weight.is_contiguous(memory_format=torch.channels_last) == (engine == "auto")

    for found, expected in zip(states["auto"], states["replay"]):
        torch.testing.assert_close(dict(found), dict(expected), rtol=1e-5, atol=1e-6)
        assert all(tensor.is_contiguous() for tensor in found.values())


def test_an_unknown_engine_that_the_environment_names_is_refused_at_compilation(monkeypatch):
    monkeypatch.setenv("PORTING_ENGINE", "warp")
    model = Model()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(OptionError, match="no engine called `warp`"):
        executor.compile(X, Y)


def test_a_cache_folder_holds_one_executable_file_with_the_default_engine(tmp_path):
    _model, executor = make_executor("ready", enableExecutableCaching=str(tmp_path))

    executor.compile(X, Y)

    assert [path.suffix for path in tmp_path.iterdir()] == [".popef"]


@pytest.mark.slow
def test_compiled_programs_lie_beside_the_executable_file(tmp_path):
    _model, executor = make_executor("interpreted", enableExecutableCaching=str(tmp_path))

    executor.compile(X, Y)

    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".popef"]
    assert len(list(tmp_path.glob("programs/[0-9a-f]*/step.program"))) == 1


@pytest.mark.slow
def test_users_see_why_a_step_is_compiled_again_and_what_comes_out_later(caplog):
    model, executor = make_executor("interpreted")
    executor.compile(X, Y)
    executor.destroy()
    model, executor = make_executor(
        "interpreted", lambda parameters: poptorch.optim.SGD(parameters, lr=0.1, momentum=0.0)
    )

    executor(X, Y)
    executor.setOptimizer(poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, use_combined_accum=False))
    executor(X, Y)

    told = [record.getMessage()[:4] for record in caplog.records if record.levelno >= logging.WARNING]
    assert [code for code in told if code in ("E006", "E008")] == ["E006", "E008"]
