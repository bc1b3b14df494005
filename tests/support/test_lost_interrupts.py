"""Ctrl-C ends a program in which a finalizer was running when it came."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import weakref

import pytest
import torch
from torch import nn

from porting import to_ipu
from porting.support import lost_interrupts
from porting.support.lost_interrupts import pass_on_interrupts


class Kept:
    """Something that can be collected."""


@pytest.fixture(autouse=True)
def _hooks_are_pythons_own(monkeypatch):
    """Take away pytest's hook, and the deafness to interrupts of a shell's background."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(*_arguments):
    """Stand for a finalizer in the middle of which Ctrl-C comes."""
    raise KeyboardInterrupt


def drop_a_referent():
    kept = Kept()
    return weakref.ref(kept, interrupt)


def drop_a_finalized():
    weakref.finalize(Kept(), interrupt)


def drop_a_cycle():
    kept = type("Ending", (), {"__del__": interrupt})()
    kept.itself = kept
    del kept
    gc.collect()


@pytest.mark.parametrize("drop", [drop_a_referent, drop_a_finalized, drop_a_cycle])
def test_an_interrupt_in_a_finalizer_comes_again(drop):
    pass_on_interrupts()

    drop()

    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)


def test_an_interrupt_is_sent_only_when_the_hook_has_ended(monkeypatch):
    monkeypatch.setattr(lost_interrupts.threading, "Timer", SlowTimer)
    pass_on_interrupts()

    drop_a_finalized()

    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)


class SlowTimer(threading.Timer):
    """One whose thread has done all it does before `start` returns, as on a busy machine."""

    def start(self):
        super().start()
        self.join(0.2)


def test_what_else_a_finalizer_raises_is_said_as_before(monkeypatch):
    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    pass_on_interrupts()

    weakref.finalize(Kept(), lambda: 1 / 0)

    assert [unraisable.exc_type for unraisable in said] == [ZeroDivisionError]


def test_the_hook_is_set_once():
    pass_on_interrupts()
    hook = sys.unraisablehook

    pass_on_interrupts()

    assert sys.unraisablehook is hook


@pytest.mark.parametrize("loop", ["device", "host"])
def test_a_port_passes_interrupts_on(loop):
    keywords = {"loop": "host"} if loop == "host" else {"loss": nn.CrossEntropyLoss()}
    to_ipu(nn.Linear(4, 3), device="sim", **keywords)

    drop_a_finalized()

    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)


def test_a_training_that_is_interrupted_while_a_port_goes_away_ends(monkeypatch):
    forgotten = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(), device="sim")
    forgotten(torch.ones(6, 4), torch.zeros(6, dtype=torch.int64))
    monkeypatch.setattr("porting.api.compilation.disable_current_modes", interrupt)

    del forgotten

    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)
