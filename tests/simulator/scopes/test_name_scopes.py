"""Names and attributes of operators in the compiled graph: name scopes, sub-modules, attributes, source lines."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator import Attribute, NameScope
from porting.simulator._scopes.graph_scopes import find_source_location


class Inner(nn.Module):
    """Adds one, and then multiplies inside a name scope."""

    def forward(self, x):
        x = x + 1
        with NameScope("scope"):
            return x * 2


class Outer(nn.Module):
    """Runs an `Inner` that is two levels down, and then `body`."""

    def __init__(self, body=None):
        super().__init__()
        self.blocks = nn.ModuleList([Inner()])
        self.body = body

    def forward(self, x):
        x = self.blocks[0](x)
        return x - 1 if self.body is None else self.body(x)


def make_list(model, options=None):
    executor = simulator.inferenceModel(model, options)
    executor.compile(torch.ones(2))
    return json.loads(executor._debugGetPopartIR())["maingraph"]


def named(model, options=None):
    return [op["name"] for op in make_list(model, options)]


def test_names_begin_with_the_modules_that_are_called():
    assert named(Outer()) == ["0/Add", "0/scope/Mul", "Sub"]


def test_names_of_modules_can_be_left_out():
    assert named(Outer(), simulator.Options().disableModuleNamescope()) == ["Add", "scope/Mul", "Sub"]


def test_name_scopes_go_around_the_modules_called_in_them():
    class Scoped(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Inner()

        def forward(self, x):
            with NameScope("a"), NameScope("b"):
                return self.part(x)

    assert named(Scoped()) == ["a/b/part/Add", "a/b/part/scope/Mul"]


def test_a_name_scope_ends_with_an_error_that_forward_catches():
    class Failing(nn.Module):
        def forward(self, x):
            with NameScope("lost"):
                raise KeyError("mine")

    class Catching(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Failing()

        def forward(self, x):
            with NameScope("kept"):
                try:
                    self.part(x)
                except KeyError:
                    x = x + 1
            return x * 2

    assert named(Catching())[-1] == "Mul"


def test_modules_have_no_hooks_after_a_compilation():
    def fail(x):
        raise KeyError("mine")

    model = Outer(fail)

    with pytest.raises(KeyError, match="mine"):
        named(model)

    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert not nn.modules.module._global_forward_pre_hooks
    assert not nn.modules.module._global_forward_hooks


def test_a_name_scope_has_a_name():
    for value in (3, None, ["a"]):
        with pytest.raises(AssertionError, match="Parameter to NameScope must be a string"):
            NameScope(value)


def test_attributes_are_those_of_the_operators_inside():
    def body(x):
        with Attribute(__outline={"layer": "embedding"}):
            x = x + 1
        return x * 2

    *_first, inside, outside = make_list(Outer(body))

    assert inside["attributes"]["__outline"] == {"layer": "embedding"}
    assert "__outline" not in outside["attributes"]


def test_attributes_of_nested_contexts_add_up_and_come_back():
    def body(x):
        with Attribute(__a={"k": "1", "l": "1"}):
            with Attribute(__a={"k": "2"}, __b={"m": "3"}):
                x = x + 1
            return x * 2

    *_first, inner, outer = make_list(Outer(body))

    assert inner["attributes"]["__a"] == {"k": "2", "l": "1"}
    assert inner["attributes"]["__b"] == {"m": "3"}
    assert outer["attributes"]["__a"] == {"k": "1", "l": "1"}
    assert "__b" not in outer["attributes"]


def test_attributes_that_hold_are_known_to_the_class():
    assert Attribute._current_attrs == {}
    with Attribute(a={"k": "1"}):
        with Attribute(a={"k": "2", "l": "3"}):
            assert Attribute._current_attrs == {"a": {"k": "2", "l": "3"}}
        assert Attribute._current_attrs == {"a": {"k": "1"}}
    assert Attribute._current_attrs == {}


def test_attributes_are_found_where_programs_look_for_them():
    assert simulator.options.Attribute is simulator.ops.Attribute is Attribute
    assert simulator.ops.NameScope is NameScope


def test_operators_know_the_users_line():
    *_first, last = make_list(Outer())

    file, _, line = last["location"].rpartition(":")
    assert file == __file__
    assert int(line) == Outer.forward.__code__.co_firstlineno + 2


def test_excluded_files_are_not_the_users():
    excluding = simulator.Options().appendToLocationExcludes("test_name_scopes")

    assert {op["location"] for op in make_list(Outer(), excluding)} == {None}


def test_without_exclusions_torchs_own_lines_count():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

    everything = simulator.Options().sourceLocationExcludes([])

    assert __file__ in make_list(Linear())[0]["location"]
    assert "linear.py" in make_list(Linear(), everything)[0]["location"]


def test_a_location_is_the_innermost_line_outside_the_package():
    assert find_source_location(()).startswith(f"{__file__}:")
