"""The checks of a backend pass on the simulator, and each fails on a backend with the fault that it looks for."""

from __future__ import annotations

import types

import pytest
import torch

import porting.simulator
from porting.conformance import CHECKS, check_backend
from porting.options import devices

SIMULATOR_NAMES = {name: getattr(porting.simulator, name) for name in dir(porting.simulator) if name[0] != "_"}


@pytest.fixture(autouse=True)
def no_backends(monkeypatch):
    monkeypatch.setattr(devices, "_REGISTERED", {})


def make_backend(**changes):
    """Make a module with the simulator's names, and some of its own."""
    module = types.ModuleType("own_backend")
    vars(module).update(SIMULATOR_NAMES, **changes)
    return module


def faults_of(module):
    return {outcome.name: outcome.fault for outcome in check_backend(module) if not outcome.passed}


def test_the_simulator_is_a_backend():
    outcomes = list(check_backend(porting.simulator))

    assert [outcome.name for outcome in outcomes] == ["names", *CHECKS]
    assert all(outcome.passed for outcome in outcomes)


def test_the_random_stream_of_the_host_is_left_alone():
    before = torch.get_rng_state()

    list(check_backend(porting.simulator))

    assert torch.equal(torch.get_rng_state(), before)


def test_missing_names_are_listed_and_nothing_else_is_tried():
    outcomes = list(check_backend(make_backend(trainingModel=None, DataLoader=None)))

    assert [(outcome.name, outcome.fault) for outcome in outcomes] == [("names", "missing: trainingModel, DataLoader")]


def test_options_without_a_setter_are_no_options():
    class Options(porting.simulator.Options):
        deviceIterations = None  # noqa: N815 - the name of PopTorch

    assert faults_of(make_backend(Options=Options)) == {"names": "missing: deviceIterations"}


class Wrapped:
    """An executor that hands everything on to the simulator's."""

    def __init__(self, executor):
        self._executor = executor

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def __call__(self, *args):
        return self._executor(*args)


class DeafToOptimizers(Wrapped):
    def setOptimizer(self, optimizer):
        pass


class TakesAnyShape(Wrapped):
    def __call__(self, x, y):
        if len(x) == 5:
            return x, torch.zeros(())
        return self._executor(x, y)


class LosesItsWeights(Wrapped):
    def __call__(self, *args):
        weights = {name: tensor.clone() for name, tensor in self._executor.model.state_dict().items()}
        result = self._executor(*args)
        self._executor.copyWeightsToHost()
        self._executor.model.load_state_dict(weights)
        self._executor.copyWeightsToDevice()
        return result


@pytest.mark.parametrize(
    ("executor", "check"),
    [
        (DeafToOptimizers, "a learning-rate schedule"),
        (TakesAnyShape, "a batch of another shape"),
        (LosesItsWeights, "training with SGD"),
    ],
)
def test_a_fault_of_an_executor_is_found(executor, check):
    def make_executor(*args, **kwargs):
        return executor(porting.simulator.trainingModel(*args, **kwargs))

    found = faults_of(make_backend(trainingModel=make_executor))

    assert check in found


def test_a_loader_that_loses_samples_is_found():
    class DataLoader(porting.simulator.DataLoader):
        def __iter__(self):
            return iter(list(super().__iter__())[1:])

    assert "the loader" in faults_of(make_backend(DataLoader=DataLoader))
