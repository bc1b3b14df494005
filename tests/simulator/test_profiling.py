"""Profile channels do nothing without the vendor's library, and use it where it is there and asked for."""

from __future__ import annotations

import contextlib
import sys
import types

import pytest
import torch

import porting.simulator as simulator
from porting.simulator.profiling import Channel


class Library(types.ModuleType):
    """A stand-in for `libpvti` that writes down how it is used."""

    def __init__(self):
        super().__init__("libpvti")
        self.__spec__ = types.SimpleNamespace(name="libpvti")
        self.calls = []

    def createTraceChannel(self, name):
        return f"channel {name}"

    def instrument(self, obj, methods, channel):
        self.calls.append((obj, methods, channel))

    def Tracepoint(self, channel, name):
        self.calls.append((channel, name))
        return contextlib.nullcontext()


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setitem(sys.modules, "libpvti", library)
    return library


def test_a_channel_does_nothing_without_the_library(monkeypatch):
    monkeypatch.setenv("PVTI_OPTIONS", '{"enable":"true"}')
    channel = Channel("x")
    instrumented = []

    assert channel.instrument(instrumented, "append") is instrumented
    with channel.tracepoint("point"):
        instrumented.append(1)
    assert instrumented == [1]


def test_a_channel_does_nothing_unless_asked_for(monkeypatch, library):
    monkeypatch.delenv("PVTI_OPTIONS", raising=False)

    with Channel("x").instrument(Channel("y")).tracepoint("z"):
        assert library.calls == []


def test_a_channel_records_methods_and_points_with_the_library(monkeypatch, library):
    monkeypatch.setenv("PVTI_OPTIONS", '{"enable":"true"}')
    channel = Channel("x")
    instrumented = []

    assert channel.instrument(instrumented, "append", "clear") is instrumented
    with channel.tracepoint("epoch"):
        pass

    assert library.calls == [(instrumented, ["append", "clear"], "channel x"), ("channel x", "epoch")]


def test_an_executors_transfers_and_compilation_are_recorded(monkeypatch, library):
    monkeypatch.setenv("PVTI_OPTIONS", '{"enable":"true"}')

    executor = simulator.inferenceModel(torch.nn.ReLU())

    methods = ["copyWeightsToHost", "copyWeightsToDevice", "setOptimizer", "compile", "destroy"]
    assert library.calls == [(executor, methods, "channel poptorch.inferenceModel")]
