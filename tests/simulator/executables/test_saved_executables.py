"""Executables as files: `save`, `compileAndExport`, `poptorch.load` and `loadExecutable`."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._poptorch_data import PoptorchData

NAMES = ("momentum", "adam", "torch")


class Noisy(nn.Module):
    """Dropout, batch statistics and a loss: weights, buffers, optimizer and random stream all matter."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, target=None):
        output = self.dropout(self.norm(self.linear(x)))
        if target is None:
            return output
        return output, nn.functional.mse_loss(output, target)


class Double(nn.Module):
    def forward(self, x):
        return x * 2


def optimizer_called(poptorch, name, model):
    if name == "adam":
        return poptorch.optim.Adam(model.parameters(), lr=0.1)
    if name == "momentum":
        return poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, use_combined_accum=False)
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.fixture(params=NAMES)
def trained(poptorch, batch, request):
    """Give a training executor that has run twice."""
    torch.manual_seed(0)
    model = Noisy()
    options = poptorch.Options().randomSeed(3)
    executor = poptorch.trainingModel(model, options, optimizer_called(poptorch, request.param, model))
    for _ in range(2):
        executor(*batch)
    return executor


# -- what comes back


def test_a_loaded_training_goes_on_as_if_nothing_had_happened(poptorch, trained, batch, tmp_path):
    trained.save(tmp_path / "model.poptorch")
    expected = [trained(*batch)[1].item() for _ in range(3)]

    loaded = poptorch.load(tmp_path / "model.poptorch")

    assert [loaded(*batch)[1].item() for _ in range(3)] == expected


def test_loaded_weights_are_those_of_the_device(poptorch, trained, tmp_path):
    trained.save(tmp_path / "model.poptorch")

    loaded = poptorch.load(tmp_path / "model.poptorch")

    expected = trained.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())


def test_a_loaded_inference_gives_the_same_outputs(poptorch, batch, tmp_path):
    executor = poptorch.inferenceModel(Noisy().eval())
    expected = executor(batch[0])
    executor.save(tmp_path / "model.poptorch")

    loaded = poptorch.load(tmp_path / "model.poptorch")

    assert torch.equal(loaded(batch[0]), expected)


def test_a_loaded_executor_is_compiled_and_attached(poptorch, batch, tmp_path, caplog):
    poptorch.inferenceModel(Noisy()).compileAndExport(tmp_path / "model.poptorch", batch[0])

    loaded = poptorch.load(tmp_path / "model.poptorch")
    loaded.compile(batch[0])

    assert loaded.isAttachedToDevice()
    assert caplog.messages == ["Call to compile() ignored: the executable is already compiled"]


def test_other_arguments_than_the_saved_ones_are_refused(poptorch, tmp_path):
    poptorch.inferenceModel(Double()).compileAndExport(tmp_path / "model.poptorch", torch.ones(2))

    loaded = poptorch.load(tmp_path / "model.poptorch")

    with pytest.raises(poptorch.Error, match=r"expected torch.Size\(\[2\]\) but got torch.Size\(\[3\]\)"):
        loaded(torch.ones(3))


class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0).reshape(2, 2))

    def forward(self, x):
        return x * self.weight


def test_weights_that_differ_between_replicas_still_do(poptorch, tmp_path):
    options = poptorch.Options().replicationFactor(2)
    executor = poptorch.inferenceModel(Grouped(), options)
    no_grouping, one = poptorch.CommGroupType.NoGrouping, poptorch.VariableRetrievalMode.OnePerGroup
    executor.weight.replicaGrouping(no_grouping, 0, one)
    expected = executor(torch.ones(4, 2))
    executor.save(tmp_path / "file")

    loaded = poptorch.load(tmp_path / "file")

    assert torch.equal(loaded(torch.ones(4, 2)), expected)


class TwoStages(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)

    def forward(self, x):
        return self.second(self.first(x))


def test_blocks_and_their_strategy_are_saved_too(poptorch, tmp_path):
    model = TwoStages()
    model.first = poptorch.BeginBlock(model.first, "first", 0)
    model.second = poptorch.BeginBlock(model.second, "second", 1)
    options = poptorch.Options().deviceIterations(2)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("first"), poptorch.Stage("second")))
    executor = poptorch.inferenceModel(model, options)
    expected = executor(torch.ones(4, 2))
    executor.save(tmp_path / "file")

    loaded = poptorch.load(tmp_path / "file")

    assert torch.equal(loaded(torch.ones(4, 2)), expected)
    assert repr(loaded) == repr(executor)


def test_options_can_be_edited_before_they_are_used(poptorch, tmp_path):
    options = poptorch.Options().modelName("first")
    poptorch.inferenceModel(Double(), options).compileAndExport(tmp_path / "model.poptorch", torch.ones(2))

    loaded = poptorch.load(tmp_path / "model.poptorch", edit_opts_fn=lambda opts: opts.modelName("second"))

    assert loaded.options.model_name == "second"
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        loaded.options.modelName("third")


def test_the_random_state_can_be_left_out(poptorch, batch, tmp_path):
    executor = poptorch.inferenceModel(Noisy(), poptorch.Options().randomSeed(1))
    executor(batch[0])
    executor.save(tmp_path / "model.poptorch", save_rng_state=False)

    assert poptorch.load(tmp_path / "model.poptorch").rng_state == [1]


@pytest.mark.usefixtures("programs_have_simulator")
@pytest.mark.slow
def test_the_model_is_a_plain_one_in_another_process(tmp_path):
    (tmp_path / "doubling.py").write_text(
        "import torch, porting.simulator as poptorch\n"
        "class Scale(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(1))\n"
        "    def forward(self, x):\n"
        "        return poptorch.identity_loss((x * self.weight).square().mean(), 'none')\n"
    )
    head = "import sys, torch, doubling, porting.simulator as poptorch\n"
    (tmp_path / "save.py").write_text(
        head + "poptorch.trainingModel(doubling.Scale()).compileAndExport('m.poptorch', torch.full((1,), 3.0))\n"
    )
    (tmp_path / "load.py").write_text(
        head + "import pickle\n"
        "data = pickle.loads(poptorch.importPoptorchMetadataFromFile('m.poptorch'))\n"
        "print(type(data.model).__name__, type(data.model.weight).__name__)\n"
        "print(poptorch.load('m.poptorch')(torch.full((1,), 3.0)).item())\n"
    )

    for script in ("save.py", "load.py"):
        done = subprocess.run(
            [sys.executable, script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": f"{Path(simulator.__file__).parents[2]}:{tmp_path}", "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr

    assert done.stdout.split() == ["Scale", "Parameter", "9.0"]


# -- loadExecutable


def test_an_executor_of_an_equal_model_takes_the_executable_over(poptorch, trained, batch, tmp_path):
    trained.save(tmp_path / "model.poptorch", export_model=False)
    torch.manual_seed(5)
    model = Noisy()
    model.load_state_dict(trained.state_dict())
    executor = poptorch.inferenceModel(model)

    with pytest.raises(poptorch.Error, match="it holds the executable of another model"):
        executor.loadExecutable(tmp_path / "model.poptorch")
    training = poptorch.trainingModel(model)
    training.loadExecutable(tmp_path / "model.poptorch")

    assert training.isAttachedToDevice()
    assert training(*batch)[0].shape == (12, 2)


def test_options_that_cut_the_batch_differently_are_named(poptorch, tmp_path):
    options = poptorch.Options().deviceIterations(4)
    poptorch.inferenceModel(nn.ReLU(), options).compileAndExport(tmp_path / "file", torch.ones(4))

    with pytest.raises(
        poptorch.Error, match="not those that the file was saved with: device_iterations was 4 and is 1"
    ):
        poptorch.inferenceModel(nn.ReLU()).loadExecutable(tmp_path / "file")


def test_the_weights_of_the_model_are_used_not_those_of_the_file(poptorch, tmp_path):
    poptorch.inferenceModel(nn.Linear(1, 1)).compileAndExport(tmp_path / "file", torch.ones(1, 1), export_model=False)
    other = nn.Linear(1, 1)
    executor = poptorch.inferenceModel(other)

    executor.loadExecutable(tmp_path / "file")

    assert torch.equal(executor(torch.ones(1, 1)), other(torch.ones(1, 1)))


def test_another_model_leaves_the_executor_usable(poptorch, tmp_path):
    poptorch.inferenceModel(nn.ReLU()).compileAndExport(tmp_path / "file", torch.ones(2))
    executor = poptorch.inferenceModel(Double())

    with pytest.raises(poptorch.Error, match="another model"):
        executor.loadExecutable(tmp_path / "file")

    assert not executor.isCompiled()
    assert executor(torch.ones(2)).tolist() == [2, 2]


def test_a_wrong_file_leaves_a_training_as_it_is(poptorch, batch, tmp_path):
    other = Noisy()
    other.dropout = nn.Identity()
    poptorch.trainingModel(other).compileAndExport(tmp_path / "file", *batch)
    model = Noisy()
    executor = poptorch.trainingModel(model, None, poptorch.optim.Adam(model.parameters(), lr=0.1))
    executor(*batch)
    weights = model.linear.weight.detach().clone()

    with pytest.raises(poptorch.Error, match="another model"):
        executor.loadExecutable(tmp_path / "file")

    assert executor.isAttachedToDevice()
    assert type(model).__name__ == "PoptorchNoisy"
    assert torch.equal(model.linear.weight, weights)
    executor(*batch)
    assert not torch.equal(model.linear.weight, weights)


def test_a_file_takes_the_place_of_an_executable(poptorch, trained, batch, tmp_path):
    trained.save(tmp_path / "file", export_model=False)
    weights = trained.model.linear.weight.detach().clone()

    trained.loadExecutable(tmp_path / "file")

    assert trained.isAttachedToDevice()
    assert torch.equal(trained.model.linear.weight, weights)
    trained(*batch)
    assert not torch.equal(trained.model.linear.weight, weights)


def test_an_executable_with_other_constants_is_one_of_another_model(poptorch, tmp_path):
    class Adds(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def forward(self, x):
            return x + torch.tensor([self.value], device=x.device)

    poptorch.inferenceModel(Adds(1.0)).compileAndExport(tmp_path / "file", torch.ones(1), export_model=False)
    executor = poptorch.inferenceModel(Adds(2.0))

    with pytest.raises(poptorch.Error, match=r"different: constants\)"):
        executor.loadExecutable(tmp_path / "file")

    poptorch.inferenceModel(Adds(1.0)).loadExecutable(tmp_path / "file")


def test_a_file_without_its_model_says_what_to_do(poptorch, tmp_path):
    file = tmp_path / "file"
    poptorch.inferenceModel(Double()).compileAndExport(file, torch.ones(2), export_model=False)

    with pytest.raises(AssertionError) as caught:
        poptorch.load(file)

    assert str(caught.value) == (
        f"{file} is a valid PopTorch file but was created with 'export_model=False' which means you need to re-create "
        "the PopTorch model using poptorch.inferenceModel or poptorch.trainingModel then call "
        f'poptorch_model.loadExecutable("{file}").'
    )


# -- saving


def test_saving_needs_an_executable(poptorch, tmp_path):
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed."):
        poptorch.inferenceModel(Double()).save(tmp_path / "file")


def test_folders_are_made(poptorch, tmp_path):
    poptorch.inferenceModel(Double()).compileAndExport(tmp_path / "a" / "b" / "file", torch.ones(2))

    assert (tmp_path / "a" / "b" / "file").is_file()


def test_a_directory_gets_a_file_of_the_default_name(poptorch, tmp_path, caplog):
    poptorch.inferenceModel(Double()).compileAndExport(str(tmp_path), torch.ones(2))

    assert (tmp_path / "model.poptorch").is_file()
    assert caplog.messages == [f"save(): {tmp_path} is a directory, saving model to {tmp_path}/model.poptorch"]


def test_a_file_in_the_place_of_the_folder_is_refused(poptorch, tmp_path):
    (tmp_path / "a").write_text("")

    with pytest.raises(AssertionError, match=f"Destination folder {tmp_path}/a is not a directory"):
        poptorch.inferenceModel(Double()).compileAndExport(tmp_path / "a" / "file", torch.ones(2))


def test_saving_fetches_the_weights_once(poptorch, trained, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, logger="poptorch::python")

    trained.save(tmp_path / "file")

    assert caplog.messages.count("Implicit copyWeightsToHost()") == 1


def test_a_failed_save_leaves_the_old_file(poptorch, tmp_path):
    executor = poptorch.inferenceModel(Double())
    executor.compileAndExport(tmp_path / "file", torch.ones(2))
    before = (tmp_path / "file").read_bytes()
    executor.model.unsaved = lambda: None

    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        executor.save(tmp_path / "file")

    assert (tmp_path / "file").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# -- what is refused


def test_a_file_of_another_version_is_refused(poptorch, tmp_path):
    file = tmp_path / "file"
    poptorch.inferenceModel(Double()).compileAndExport(file, torch.ones(2))
    poptorch.poptorch_core.appendPoptorchMetadataToFile(PoptorchData("1.2.3", object()).serialize(), file)
    message = (
        f"Invalid file {file}: PopTorch version mismatch: File was created with version: 1.2.3 and this is version "
        f"{poptorch.__version__}"
    )

    with pytest.raises(AssertionError) as refused_by_load:
        poptorch.load(file)
    with pytest.raises(poptorch.Error) as refused_by_executor:
        poptorch.inferenceModel(Double()).loadExecutable(file)

    assert str(refused_by_load.value) == message
    assert refused_by_executor.value.message == message
    assert refused_by_executor.value.type == "poptorch_py_error"


def test_a_file_without_inputs_is_refused(poptorch, tmp_path):
    file = tmp_path / "file"
    poptorch.inferenceModel(Double()).compileAndExport(file, torch.ones(2))
    data = PoptorchData(poptorch.__version__, None).serialize()
    poptorch.poptorch_core.appendPoptorchMetadataToFile(data, file)

    with pytest.raises(AssertionError, match=f"Invalid file {file}: Executable inputs are missing"):
        poptorch.load(file)


def test_metadata_of_another_kind_are_refused(poptorch, tmp_path):

    file = tmp_path / "file"
    poptorch.inferenceModel(Double()).compileAndExport(file, torch.ones(2))
    poptorch.poptorch_core.appendPoptorchMetadataToFile(pickle.dumps({}), file)

    with pytest.raises(AssertionError, match=f"Invalid file {file}: The metadata are of type <class 'dict'>"):
        poptorch.load(file)


# -- offline


@pytest.fixture
def offline(poptorch):
    """Give options for a device that is not there."""
    return poptorch.Options().useOfflineIpuTarget()


def test_an_offline_model_can_be_exported_and_used_where_there_is_a_device(poptorch, offline, tmp_path):
    executor = poptorch.inferenceModel(Double(), offline)

    executor.compileAndExport(tmp_path / "file", torch.ones(2))
    loaded = poptorch.load(tmp_path / "file")

    assert loaded(torch.ones(2)).tolist() == [2, 2]
    assert loaded.options.connection_type == poptorch.ConnectionType.Always
    assert not loaded.options.exists("ipu_version")


def test_exporting_an_offline_training_reads_nothing_from_a_device(poptorch, offline, batch, tmp_path, debug_log):
    torch.manual_seed(0)
    model = Noisy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, offline, optimizer)

    executor.compileAndExport(tmp_path / "file", *batch)

    assert "from IPU" not in debug_log()
    assert optimizer.state_dict()["ipu_state"] is None
    assert all(torch.equal(value, before[name]) for name, value in executor.state_dict().items())
