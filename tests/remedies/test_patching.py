"""What is exchanged is put back, however it ends."""

from __future__ import annotations

import pytest

from porting.remedies.patching import find_attribute, is_importable_now, replaced_attribute


class Base:
    def say(self):
        return "plain"


class Heir(Base):
    pass


def test_a_function_is_put_back_after_an_error():
    before = Base.say

    with pytest.raises(KeyError), replaced_attribute(Base, "say", lambda self: "other"):
        raise KeyError

    assert Base.say is before


def test_what_a_class_inherits_is_not_its_own_afterwards():
    with replaced_attribute(Heir, "say", lambda self: "other"):
        assert (Heir().say(), Base().say()) == ("other", "plain")

    assert "say" not in vars(Heir)


def test_contexts_in_each_other_are_undone_in_order():
    with replaced_attribute(Base, "say", lambda self: "outer"):
        with replaced_attribute(Base, "say", lambda self: "inner"):
            assert Base().say() == "inner"
        assert Base().say() == "outer"

    assert Base().say() == "plain"


def test_the_same_change_is_made_once():
    with replaced_attribute(Base, "say", lambda self: "first", key="one"):
        with replaced_attribute(Base, "say", lambda self: "second", key="one"):
            assert Base().say() == "first"
        assert Base().say() == "first"


def test_an_attribute_is_found_by_its_path():
    owner, name = find_attribute("torch.nn.modules.linear:Linear.forward")

    assert (owner.__name__, name) == ("Linear", "forward")


def test_a_function_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError):
        find_attribute("torch.nn.modules.linear:Linear.backward")


def test_no_module_is_imported_for_a_patch():
    assert not is_importable_now("a_library.that_nobody_has:Class.method")
