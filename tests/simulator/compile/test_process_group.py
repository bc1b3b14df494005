"""Processes find one another, see when they start unequal, and say so when one of them is lost."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.spawn
import re
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

import porting.simulator as simulator
from porting.simulator._compile.process_group import ProcessExchange, connect, require_reachable

LAUNCHER_VARIABLES = (
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE "
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PORTING_RENDEZVOUS PORTING_EXCHANGE_TIMEOUT"
).split()


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def run_processes(tmp_path_factory, simulator_server):
    """Give a function that calls another in two processes which can meet, and returns what the calls returned.

    They are the same two for all tests, each with a number of its own, and have met once.
    """
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in LAUNCHER_VARIABLES:
            patch.delenv(name, raising=False)
        patch.setenv("PORTING_RENDEZVOUS", str(tmp_path_factory.mktemp("meeting") / "rendezvous"))
        patch.setenv("OMP_NUM_THREADS", "1")
        stack.callback(multiprocessing.spawn.set_executable, multiprocessing.spawn.get_executable())
        multiprocessing.spawn.set_executable(simulator_server.python)
        processes = [stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn)) for _index in range(2)]
        # a process starts with its first task, and takes the variables along
        for started in [process.submit(connect, index, 2) for index, process in enumerate(processes)]:
            started.result(timeout=120)
        yield lambda function: [
            result.result(timeout=120)
            for result in [process.submit(function, index) for index, process in enumerate(processes)]
        ]


def test_processes_that_cannot_meet_are_told_how_to():
    with pytest.raises(simulator.Error, match=re.escape("Start the program with `porting run --num-instances 3`")):
        require_reachable(1, 3)


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"PORTING_RENDEZVOUS": "/tmp/x"}, "file:///tmp/x"),
        ({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}, "env://"),
    ],
    ids=["our launcher", "torchrun"],
)
def test_a_launcher_says_where_they_meet(monkeypatch, variables, address):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert require_reachable(0, 2) == address


def test_a_process_that_the_others_never_join_gives_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTING_RENDEZVOUS", str(tmp_path / "rendezvous"))
    monkeypatch.setenv("PORTING_EXCHANGE_TIMEOUT", "0.5")

    with pytest.raises(simulator.Error, match="process 0 of 2 could not reach the others") as caught:
        connect(0, 2)

    assert caught.value.type == "popdist_error"


def test_groups_of_replicas_over_several_processes_are_refused():
    model = simulator.trainingModel(GroupedWeight(), options_of(0).replicationFactor(2))
    model.weight.replicaGrouping(simulator.CommGroupType.NoGrouping, 0, simulator.VariableRetrievalMode.AllReplicas)

    with pytest.raises(simulator.errors.NotSimulatedError, match="would have to reach over 2 processes"):
        model(torch.ones(2, 3))


# -- in processes ----------------------------------------------------------------------------------------------------


def exchange_twice(index):
    exchange = ProcessExchange(index, 2)
    gradients = [torch.full((2,), float(index + 1)), torch.tensor([[10.0 * index]])]
    exchange(gradients)
    exchange(gradients)
    return [gradient.tolist() for gradient in gradients]


def disagree(index):
    connect(index, 2)
    try:
        connect(1 - index, 2)
    except simulator.Error as error:
        return error.message
    return None


class Projection(torch.nn.Module):
    def __init__(self, with_dropout=False):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)
        self.dropout = torch.nn.Dropout(0.5 if with_dropout else 0.0)

    def forward(self, x):
        dropped = self.dropout(x)
        return dropped, simulator.identity_loss(self.linear(dropped), "mean")


class GroupedWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 3))

    def forward(self, x):
        return simulator.identity_loss(x * self.weight, "mean")


def options_of(index):
    options = simulator.Options().showCompilationProgressBar(False)
    options.randomSeed(3)
    options.Distributed.configureProcessId(index, 2)
    return options


def train_from_weights_of_its_own(index):
    options = options_of(index)
    torch.manual_seed(index)
    return train_and_listen(options)


def train_from_equal_weights(index):
    return train_and_listen(options_of(index))


def train_and_listen(options):
    """Train for a step and return what is said of different weights."""
    records = []

    def listen(record):
        records.append(record.getMessage())

    simulator.logger.addFilter(listen)
    try:
        simulator.trainingModel(Projection(), options)(torch.ones(2, 3))
    finally:
        simulator.logger.removeFilter(listen)
    return [text for text in records if "different weights" in text]


def drop(index):
    executor = simulator.trainingModel(Projection(with_dropout=True), options_of(index))
    return executor(torch.ones(32, 3))[0].tolist()


@pytest.mark.slow
def test_gradients_are_added_up_in_all_processes(run_processes):
    # twice, so each sum is doubled
    expected = [[6.0, 6.0], [[20.0]]]

    assert run_processes(exchange_twice) == [expected, expected]


@pytest.mark.slow
def test_a_process_group_of_other_numbers_is_an_error(run_processes):
    first, second = run_processes(disagree)

    assert "this is process 1 of 2 for the one and process 0 of 2 for the other" in first
    assert "this is process 0 of 2 for the one and process 1 of 2 for the other" in second


@pytest.mark.slow
def test_starting_from_different_weights_is_noticed(run_processes):
    for (message,) in run_processes(train_from_weights_of_its_own):
        assert re.search(r"different weights \(2 of 2 parameters, such as linear\.weight\)", message)


@pytest.mark.slow
def test_starting_from_equal_weights_is_not(run_processes):
    assert run_processes(train_from_equal_weights) == [[], []]


@pytest.mark.slow
def test_each_process_draws_random_numbers_of_its_own(run_processes):
    first, second = run_processes(drop)

    assert first != second
