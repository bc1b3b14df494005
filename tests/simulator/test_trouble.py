"""The failure lab: each kind of trouble strikes at the chosen moment, as hardware would, and leaves a sane executor."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator import trouble
from porting.simulator.trouble import inject


@pytest.fixture
def training(regression):
    return simulator.trainingModel(regression, optimizer=simulator.optim.Adam(regression.parameters(), lr=0.1))


def loss_of(executor, batch):
    return executor(*batch)[1].item()


# -- memory --------------------------------------------------------------------------------------------------------


def test_memory_runs_out_at_compilation_with_the_numbers_of_the_worst_tile(training, batch):
    with inject("out-of-memory"), pytest.raises(simulator.Error) as caught:
        training.compile(*batch)

    assert "Out of memory on tile 0: 677314 bytes used but tiles only have 638976 bytes of memory" in str(caught.value)
    assert caught.value.type == "popart_exception"
    assert "enableProfiling" in caught.value.message
    assert not training.isCompiled()


def test_a_model_compiles_once_the_memory_suffices(training, batch):
    with inject("out-of-memory"):
        with pytest.raises(simulator.Error):
            training(*batch)

        assert loss_of(training, batch) > 0


def test_the_tile_and_the_excess_can_be_chosen(training, batch):
    with inject("out-of-memory", tile_bytes=1000, percent_over=50), pytest.raises(simulator.Error, match="1500 bytes"):
        training(*batch)


# -- device --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["IPU_RESET", "LINK_RESET", "PARTITION_RESET", "FULL_RESET"])
def test_a_lost_device_names_what_recovers_it(training, batch, action):
    with inject("lost-device", recovery=action), pytest.raises(simulator.RecoverableError) as caught:
        training(*batch)

    assert caught.value.recovery_action == action
    assert caught.value.type == "poplar_recoverable_runtime_error"
    assert f"Recovery action required: {action}" in str(caught.value)
    assert "PoplarExecutable::run" in caught.value.location


def test_a_lost_device_is_lost_at_the_chosen_call_and_the_executor_is_detached(training, batch):
    with inject("lost-device", at_call=3):
        losses = [loss_of(training, batch) for _ in range(2)]
        with pytest.raises(simulator.RecoverableError):
            training(*batch)

        assert len(losses) == 2
        assert training.isCompiled()
        assert not training.isAttachedToDevice()


def test_training_goes_on_from_the_last_weights_and_state_on_the_host(training, batch):
    with inject("lost-device", at_call=3):
        first = [loss_of(training, batch) for _ in range(2)]
        with pytest.raises(simulator.RecoverableError):
            training(*batch)
        again = [loss_of(training, batch) for _ in range(2)]

    assert again == first


def test_what_was_copied_before_the_loss_is_kept(training, batch):
    with inject("lost-device", at_call=3):
        training(*batch)
        second = loss_of(training, batch)
        training.copyWeightsToHost()
        copied = training.model.linear.weight.detach().clone()
        with pytest.raises(simulator.RecoverableError):
            training(*batch)

        assert torch.equal(training.model.linear.weight, copied)
        assert loss_of(training, batch) < second


def test_a_checkpoint_makes_an_interrupted_run_equal_to_an_undisturbed_one(regression, batch):
    start = {name: tensor.clone() for name, tensor in regression.state_dict().items()}
    optimizer = simulator.optim.SGD(regression.parameters(), lr=0.1, momentum=0.9)
    executor = simulator.trainingModel(regression, optimizer=optimizer)
    undisturbed = [loss_of(executor, batch) for _ in range(5)]
    executor.destroy()
    regression.load_state_dict(start)
    optimizer = simulator.optim.SGD(regression.parameters(), lr=0.1, momentum=0.9)
    executor = simulator.trainingModel(regression, optimizer=optimizer)

    losses, checkpoint = [], ({}, {})
    with inject("lost-device", at_call=4) as lab:
        while len(losses) < 5:
            try:
                losses.append(loss_of(executor, batch))
            except simulator.RecoverableError:
                executor.load_state_dict(checkpoint[0])
                optimizer.load_state_dict(checkpoint[1])
            weights = {name: tensor.clone() for name, tensor in executor.state_dict().items()}
            checkpoint = weights, optimizer.state_dict()

    assert lab.num_struck == 1
    assert losses == pytest.approx(undisturbed)


def test_a_device_beyond_repair_stays_lost_for_the_whole_block(training, batch):
    with inject("lost-device", recovery="none"):
        for _ in range(3):
            with pytest.raises(simulator.UnrecoverableError) as caught:
                training(*batch)

    assert caught.value.type == "poplar_unrecoverable_runtime_error"
    assert loss_of(training, batch) > 0


def test_a_busy_device_refuses_to_be_attached_and_is_free_later(training, batch):
    with inject("busy-device", times=2):
        for _ in range(2):
            with pytest.raises(simulator.Error, match="Failed to acquire"):
                training(*batch)

        assert training.isCompiled()
        assert loss_of(training, batch) > 0


def test_a_program_may_wait_for_a_busy_device(training, batch, monkeypatch):
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")

    with inject("busy-device", times=2) as lab:
        training(*batch)

    assert lab.num_struck == 2


def test_a_lost_device_is_free_for_another_executor(training, batch, monkeypatch):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    monkeypatch.setenv("PORTING_SIM_IPUS", "1")
    other = simulator.inferenceModel(nn.ReLU())

    with inject("lost-device", at_call=2, executor="training"):
        training(*batch)
        with pytest.raises(simulator.Error, match="Failed to acquire"):
            other(torch.ones(1))
        with pytest.raises(simulator.RecoverableError):
            training(*batch)

    assert other(torch.ones(1)).item() == 1.0


def test_random_numbers_after_a_loss_start_where_the_host_knows_them():
    options = simulator.Options().randomSeed(5)
    executor = simulator.inferenceModel(nn.Dropout(0.5), options)

    with inject("lost-device", at_call=3):
        first, _second = executor(torch.ones(64)), executor(torch.ones(64))
        with pytest.raises(simulator.RecoverableError):
            executor(torch.ones(64))

    assert torch.equal(executor(torch.ones(64)), first)


def test_a_broken_stream_changes_no_weight(training, batch):
    before = training.model.linear.weight.detach().clone()

    with inject("host-stream", stream=1), pytest.raises(simulator.Error, match="h2d_1") as caught:
        training(*batch)

    assert caught.value.type == "poplar_unknown_runtime_error"
    assert torch.equal(training.model.linear.weight, before)


def test_a_stream_that_the_model_does_not_have_is_refused(training, batch):
    with inject("host-stream", stream=2), pytest.raises(ValueError, match="the model has 2 inputs, counted from 0"):
        training(*batch)


# -- numbers -------------------------------------------------------------------------------------------------------


def test_overflowing_activations_are_returned_and_spoil_the_weights(training, batch):
    with inject("float16-overflow", at_call=2):
        assert torch.isfinite(training(*batch)[1])
        output, loss = training(*batch)

    assert torch.isinf(output).all()
    assert torch.isinf(loss)
    assert torch.isnan(training.model.linear.weight).all()


def test_overflowing_gradients_show_one_call_later(training, batch):
    with inject("float16-overflow", where="gradients"):
        assert torch.isfinite(training(*batch)[1])

    assert torch.isnan(training(*batch)[1])


def test_overflow_spares_whole_numbers_and_the_weights_of_inference():
    class Rank(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x), x.argmax(1)

    executor = simulator.inferenceModel(Rank())

    with inject("float16-overflow"):
        scores, ranks = executor(torch.tensor([[1.0, 2.0]]))

    assert torch.isinf(scores).all()
    assert ranks.tolist() == [1]
    assert torch.isfinite(executor(torch.ones(1, 2))[0]).all()


# -- data ----------------------------------------------------------------------------------------------------------


def loader(**settings):
    dataset = torch.utils.data.TensorDataset(torch.arange(6.0))
    return simulator.DataLoader(simulator.Options(), dataset, batch_size=2, **settings)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_cannot_be_read_and_the_next_one_can(num_workers):
    with inject("failing-data", at_call=2):
        batches = iter(loader(num_workers=num_workers))
        first = next(batches)
        with pytest.raises(OSError, match="Input/output error"):
            next(batches)
        second = next(batches)

    assert (first[0].tolist(), second[0].tolist()) == ([0.0, 1.0], [2.0, 3.0])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_watched_batches_have_what_torchs_iterators_have(num_workers):
    with inject("slow-data", seconds=0):
        batches = iter(loader(num_workers=num_workers))

        assert iter(batches) is batches
        assert len(batches) == 3
        assert batches._num_workers == num_workers
        assert hasattr(batches, "_shutdown_workers") == (num_workers > 0)
        assert len(list(batches)) == 3


def test_a_loading_process_ends_with_the_batch_that_it_cannot_read(capfd):
    fork = {"sharing_strategy": simulator.SharingStrategy.Fork, "load_indefinitely": False}

    with inject("failing-data", at_call=3):
        asynchronous = loader(mode=simulator.DataLoaderMode.Async, async_options=fork)
        with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
            list(asynchronous)

    asynchronous.terminate()
    assert "OSError: [Errno 5] Input/output error" in capfd.readouterr().err


def test_a_late_batch_is_waited_for(monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)

    with inject("slow-data", at_call=3, seconds=7):
        batches = [batch[0].tolist() for batch in loader()]

    assert waits == [7.0]
    assert batches == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


# -- when ----------------------------------------------------------------------------------------------------------


def test_trouble_of_one_mode_leaves_the_other_alone(regression, training, batch):
    inference = simulator.inferenceModel(regression)

    with inject("host-stream", executor="inference") as lab:
        training(*batch)
        with pytest.raises(simulator.Error):
            inference(*batch)

    assert lab.num_struck == 1


def test_trouble_of_one_process_leaves_the_others_alone(training, batch, monkeypatch):
    with inject("host-stream", process=1, times=0):
        training(*batch)
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
        with pytest.raises(simulator.Error):
            training(*batch)


def test_trouble_at_random_follows_its_seed(training, batch):
    def struck():
        calls = []
        with inject("host-stream", probability=0.5, seed=3):
            for _ in range(12):
                try:
                    training(*batch)
                    calls.append(False)
                except simulator.Error:
                    calls.append(True)
        return calls

    first = struck()

    assert struck() == first
    assert 2 <= sum(first) <= 10


def test_trouble_can_strike_every_time_from_a_call_on(training, batch):
    with inject("host-stream", at_call=2, times=0) as lab:
        training(*batch)
        for _ in range(3):
            with pytest.raises(simulator.Error):
                training(*batch)

    assert lab.num_struck == 3


def test_kinds_can_be_combined(training, batch):
    with inject("out-of-memory"), inject("busy-device"):
        with pytest.raises(simulator.Error, match="Out of memory"):
            training(*batch)
        with pytest.raises(simulator.Error, match="Failed to acquire"):
            training(*batch)

        assert loss_of(training, batch) > 0


def test_each_strike_is_said_to_come_from_the_lab(training, batch, caplog):
    with inject("host-stream", at_call=1), pytest.raises(simulator.Error):
        training(*batch)

    assert caplog.messages == ["failure lab: host-stream:at_call=1 at call 1 of a training executor"]


def test_nothing_is_left_after_the_block(monkeypatch):
    monkeypatch.delenv("PORTING_INJECT", raising=False)

    with contextlib.suppress(KeyError), inject("host-stream"):
        assert os.environ["PORTING_INJECT"] == "host-stream"
        raise KeyError

    assert trouble.injections == []
    assert "PORTING_INJECT" not in os.environ


def test_a_block_adds_to_what_the_environment_asks_for(monkeypatch):
    monkeypatch.setenv("PORTING_INJECT", "slow-data")

    with inject("host-stream", at_call=2):
        assert os.environ["PORTING_INJECT"] == "slow-data;host-stream:at_call=2"

    assert os.environ["PORTING_INJECT"] == "slow-data"


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_environment_injects_into_a_whole_program():
    program = (
        "import torch, porting.simulator as poptorch\n"
        "executor = poptorch.inferenceModel(torch.nn.ReLU())\n"
        "try:\n"
        "    executor(torch.ones(1))\n"
        "except poptorch.RecoverableError as error:\n"
        "    print(error.recovery_action)\n"
    )
    environment = {**os.environ, "PORTING_INJECT": "lost-device:recovery=LINK_RESET"}

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "LINK_RESET\n"


def end_of_program(injected, **environment):
    """Run a program of two calls with what is `injected`; return its status and the lines that it said at its end."""
    program = (
        "import torch, porting.simulator as poptorch\n"
        "executor = poptorch.inferenceModel(torch.nn.ReLU())\n"
        "executor(torch.ones(1)), executor(torch.ones(1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PORTING_INJECT": injected, **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, [line for line in done.stderr.splitlines() if "failure lab" in line or "P005" in line]


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_trouble_that_never_struck_is_told_at_the_end_of_the_program():
    status, said = end_of_program("lost-device:at_call=99;failing-data;slow-data:process=1;float16-overflow")

    assert status == 0
    assert said[-2:] == [
        "failure lab: lost-device:at_call=99 did not strike (2 calls)",
        "failure lab: failing-data had no batch to strike in this process; an asynchronous loader reads in one of its "
        "own",
    ]


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_wrong_environment_is_a_finding_that_names_the_variable_and_the_kinds():
    status, said = end_of_program("fire")

    assert status == 1
    assert any("P005" in line and "PORTING_INJECT is 'fire': unknown kind of trouble `fire`" in line for line in said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fire", "unknown kind of trouble `fire`: there are out-of-memory, "),
        ("host-stream:volume=3", "`host-stream` has no setting `volume`"),
        ("host-stream:at_call", "`at_call` is not of the form key=value"),
        ("host-stream:at_call=soon", "`at_call` of `host-stream` is a number, not `soon`"),
        ("host-stream:probability=2", "`probability` of `host-stream` cannot be 2"),
        ("host-stream:at_call=0", "`at_call` of `host-stream` cannot be 0, it is at least 1"),
        ("out-of-memory:percent_over=0", "`percent_over` of `out-of-memory` cannot be 0, it is at least 1"),
        ("lost-device:recovery=PRAYER", "`recovery` of `lost-device` is one of IPU_RESET, LINK_RESET"),
        ("host-stream:executor=both", "`executor` of `host-stream` is one of any, training, inference"),
    ],
)
def test_a_wrong_description_is_an_error_that_names_what_there_is(text, message):
    with pytest.raises(ValueError, match=message):
        trouble.parse(text)


def test_the_table_explains_itself_with_an_example_and_names_its_page():
    table = trouble.describe_kinds()
    words = table.partition("porting run --inject ")[2].split()[0]

    assert trouble.parse(words).kind is trouble.KINDS["lost-device"]
    assert "times=N " in table
    assert "process=I " in table
    assert "docs/failure-lab.md" in table


def test_the_table_lists_every_kind_with_its_settings():
    table = trouble.describe_kinds()

    for name, kind in trouble.KINDS.items():
        assert f"\n{name} " in f"\n{table}"
        assert all(f"{setting}=" in table for setting in kind.settings)
