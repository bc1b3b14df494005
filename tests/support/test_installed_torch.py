"""What a torch lacks, and that it was not tested, is said once in a process, or nothing is captured."""

from __future__ import annotations

import pytest
import torch

from porting.support.installed_torch import check_torch
from porting.torch_insides import modules, operators
from porting.torch_insides.parts import MissingPart


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch):
    monkeypatch.setattr("porting.torch_insides._TOLD", set())
    check_torch.cache_clear()
    yield
    check_torch.cache_clear()


def test_nothing_is_said_of_a_tested_torch(caplog):
    check_torch()

    assert not caplog.records


def test_a_newer_torch_than_any_tested_is_said_once_with_what_was_found(caplog, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "99.1.0")

    check_torch()
    check_torch()

    (record,) = caplog.records
    assert "note[E014]: torch 99.1.0 is newer than any that was tested" in record.getMessage()
    assert "11 of 11 kinds of private parts are all there" in record.getMessage()


def test_a_part_that_something_stands_for_is_said_once(caplog, monkeypatch):
    monkeypatch.setitem(modules.PARTS.losses, "torch.nn:_hooks", "hooks are not looked for")

    check_torch()
    check_torch()

    (record,) = caplog.records
    assert "has no `torch.nn._hooks`: hooks are not looked for" in record.getMessage()


def test_a_part_that_nothing_stands_for_is_an_error(monkeypatch):
    monkeypatch.setitem(operators.PARTS.losses, "torch._ops:OpOverload", "no step can be captured")
    monkeypatch.setattr(operators.PARTS, "needed", ["torch._ops:OpOverload"])

    with pytest.raises(MissingPart, match="`torch._ops.OpOverload`: no step can be captured"):
        check_torch()
