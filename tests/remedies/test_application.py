"""Remedies are chosen by the model and the library's version, and leave nothing behind."""

from __future__ import annotations

import pickle
import sys
import types

import pytest
import torch
from torch import nn

import porting
from porting.remedies import Edit, Patch, Remedies, Remedy, list_remedies, register_remedy


@pytest.fixture
def library(monkeypatch):
    """Make a library with a layer that cannot be compiled."""
    package, module = types.ModuleType("some_library"), types.ModuleType("some_library.layers")
    package.__version__ = "2.3.1"

    class Layer(nn.Linear):
        def forward(self, x):
            assert x.sum().item() < 1e9
            return super().forward(x)

    Layer.__module__ = module.__name__
    module.Layer = Layer
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return package


def make_remedy(**changes):
    patch = Patch("some_library.layers:Layer.forward", edits=(Edit("assert x.sum().item() < 1e9", "pass"),))
    settings = {"first": "2.0", "below": "3", "reason": "a check reads a sum", "patches": (patch,), **changes}
    return Remedy("no-check", "some_library", **settings)


def make_port(**options):
    torch.manual_seed(0)
    layer = sys.modules["some_library.layers"].Layer
    return porting.to_ipu(
        nn.Sequential(layer(4, 3)), nn.MSELoss(), options=porting.PortOptions(**options), device="sim"
    )


def findings_of(ported, code):
    return [finding for finding in ported.report().findings if finding.code == code]


X, Y = torch.randn(8, 4), torch.randn(8, 3)


def test_a_model_of_the_library_is_compiled_with_the_remedy(library):
    with register_remedy(make_remedy()):
        ported = make_port()
        output, _loss = ported(X, Y)

    assert output.shape == (8, 3)
    assert [finding.message.split("`")[1] for finding in findings_of(ported, "C022")] == ["no-check"]


def test_the_remedy_is_undone(library):
    layer = sys.modules["some_library.layers"].Layer
    before = layer.forward

    with register_remedy(make_remedy()):
        make_port()(X, Y)

    assert layer.forward is before


def test_the_remedy_is_undone_after_a_failure(library):
    layer = sys.modules["some_library.layers"].Layer
    before = layer.forward
    edit = Edit("assert x.sum().item() < 1e9", "raise KeyError('anything')")

    with register_remedy(make_remedy(patches=(Patch("some_library.layers:Layer.forward", edits=(edit,)),))):
        with pytest.raises(KeyError):
            make_port()(X, Y)

    assert layer.forward is before


def test_a_remedy_that_is_left_out_changes_nothing(library):
    with register_remedy(make_remedy()), pytest.raises(porting.PortingError, match="C001"):
        make_port(without_remedies=["no-check"])(X, Y)


def test_a_model_without_the_library_does_not_meet_its_remedy(library):
    with register_remedy(make_remedy()):
        ported = porting.to_ipu(nn.Linear(4, 3), nn.MSELoss(), device="sim")
        ported(X, Y)

    assert findings_of(ported, "C022") == []


@pytest.mark.parametrize("version", ["1.9", "3.0"])
def test_another_version_is_refused_by_name(library, version):
    library.__version__ = version
    sys.modules["some_library.layers"].Layer.forward = nn.Linear.forward

    with register_remedy(make_remedy()):
        ported = make_port()
        with pytest.warns(porting.PortingWarning, match=f"`no-check` is not for some_library {version}"):
            ported(X, Y)


def test_another_source_is_refused_by_name(library):
    patch = Patch("some_library.layers:Layer.forward", edits=(Edit("assert x.max()", "pass"),))
    sys.modules["some_library.layers"].Layer.forward = lambda self, x: nn.Linear.forward(self, x)

    with register_remedy(make_remedy(patches=(patch,))):
        ported = make_port()
        with pytest.warns(porting.PortingWarning, match=r"(?s)C023.*assert x.max"):
            ported(X, Y)


def test_a_function_that_is_gone_is_refused_by_name(library):
    patch = Patch("some_library.layers:Layer.backward_pass", replacement=lambda original: None)
    sys.modules["some_library.layers"].Layer.forward = nn.Linear.forward

    with register_remedy(make_remedy(patches=(patch,))):
        ported = make_port()
        with pytest.warns(porting.PortingWarning, match="no-check"):
            ported(X, Y)


def test_two_remedies_have_two_names(library):
    with register_remedy(make_remedy()), pytest.raises(porting.PortingError, match="already"):
        register_remedy(make_remedy())

    assert "no-check" not in {remedy.name for remedy in list_remedies()}


def test_remedies_can_be_pickled_with_the_model_that_they_are_for():
    remedies = pickle.loads(pickle.dumps(Remedies(without=["one"], strict=True)))

    assert list(remedies.take_findings()) == []


def test_findings_are_taken_once(library):
    with register_remedy(make_remedy()):
        ported = make_port()
        ported(X, Y)

    assert list(ported.port.wrapped.take_findings()) == []
