"""Taking nested values apart and putting them together again."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from porting.structure import (
    StructureAdapter,
    find_opaque_holder,
    flatten_tensors,
    map_tensors,
    rebuild,
    register_structure_adapter,
    replace_item,
)

Pair = namedtuple("Pair", "left right")


class Boxed:
    def __init__(self, value):
        self.value = value


class Fancy(Boxed):
    pass


class BoxedAdapter(StructureAdapter):
    def yieldTensors(self, struct):
        yield struct.value

    def reconstruct(self, original_structure, tensor_iterator):
        return type(original_structure)(next(tensor_iterator))


@pytest.fixture
def boxes_are_known():
    register_structure_adapter(Boxed, BoxedAdapter())
    yield
    register_structure_adapter(Boxed, None)


def tensors():
    return st.builds(torch.tensor, st.integers(0, 9))


def structures():
    leaves = tensors() | st.integers() | st.text(max_size=2) | st.none()
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=2), inner, max_size=3)
            | st.builds(Pair, inner, inner)
        ),
        max_leaves=8,
    )


@given(structures())
def test_rebuilding_from_its_own_tensors_gives_the_same_structure(structure):
    rebuilt = rebuild(structure, flatten_tensors(structure))

    assert rebuilt == structure


@given(structures())
def test_rebuilding_keeps_the_types_of_containers(structure):
    rebuilt = rebuild(structure, flatten_tensors(structure))

    assert type(rebuilt) is type(structure)


@given(structures())
def test_rebuilding_places_tensors_in_the_order_of_flattening(structure):
    replacements = [torch.tensor(-1.0 - index) for index, _ in enumerate(flatten_tensors(structure))]

    found = flatten_tensors(rebuild(structure, replacements))

    assert list(map(id, found)) == list(map(id, replacements))


@given(structures())
def test_mapping_is_flattening_applying_and_rebuilding(structure):
    mapped = flatten_tensors(map_tensors(lambda tensor: tensor + 1, structure))

    assert mapped == [tensor + 1 for tensor in flatten_tensors(structure)]


def test_tensors_are_found_depth_first():
    structure = ([torch.tensor(1), {"k": torch.tensor(2)}], Pair(torch.tensor(3), "text"), torch.tensor(4))

    found = flatten_tensors(structure)

    assert found == [1, 2, 3, 4]


def test_dictionaries_keep_the_order_of_their_keys():
    found = flatten_tensors({"b": torch.tensor(1), "a": torch.tensor(2)})

    assert found == [1, 2]


def test_the_keys_of_a_pattern_decide_the_order():
    later = {"a": torch.tensor(1), "b": {"y": torch.tensor(2), "x": torch.tensor(3)}}
    first = {"b": {"x": None, "y": None}, "a": None}

    found = flatten_tensors(later, like=first)

    assert found == [3, 2, 1]


def test_the_keys_of_a_pattern_reach_through_lists():
    later = [{"a": torch.tensor(1), "b": torch.tensor(2)}]

    found = flatten_tensors(later, like=[{"b": None, "a": None}])

    assert found == [2, 1]


def test_named_tuples_come_back_as_named_tuples():
    rebuilt = rebuild(Pair(torch.tensor(1), [torch.tensor(2)]), ["l", "r"])

    assert rebuilt == Pair("l", ["r"])
    assert isinstance(rebuilt, Pair)


def test_subclasses_of_dict_come_back_as_themselves():
    rebuilt = rebuild(OrderedDict(k=torch.tensor(1)), ["v"])

    assert type(rebuilt) is OrderedDict


def test_a_dictionary_with_a_default_keeps_it():
    structure = defaultdict(list, a=torch.tensor(1))

    rebuilt = rebuild(structure, ["x"])

    assert rebuilt == {"a": "x"}
    assert rebuilt["missing"] == []


def test_other_values_are_passed_on_as_the_same_object():
    value = object()

    rebuilt = rebuild([value, torch.tensor(1)], ["t"])

    assert rebuilt[0] is value


def test_tensors_that_are_declined_stay_and_take_no_replacement():
    one, two = torch.tensor(1), torch.tensor(2)

    rebuilt = rebuild([one, two], ["new"], replaces=lambda tensor: tensor is two)

    assert rebuilt[0] is one
    assert rebuilt[1] == "new"


@pytest.mark.usefixtures("boxes_are_known")
def test_an_adapter_reaches_the_tensors_of_its_type():
    found = flatten_tensors([Boxed(torch.tensor(1)), torch.tensor(2)])

    assert found == [1, 2]


@pytest.mark.usefixtures("boxes_are_known")
def test_an_adapter_rebuilds_its_type():
    rebuilt = rebuild([Boxed(torch.tensor(1)), torch.tensor(2)], ["a", "b"])

    assert rebuilt[0].value == "a"
    assert rebuilt[1] == "b"


@pytest.mark.usefixtures("boxes_are_known")
def test_an_adapter_serves_subclasses_of_its_type():
    rebuilt = rebuild(Fancy(torch.tensor(1)), ["a"])

    assert type(rebuilt) is Fancy


def test_a_removed_adapter_is_forgotten():
    register_structure_adapter(Boxed, BoxedAdapter())
    register_structure_adapter(Boxed, None)

    assert flatten_tensors(Boxed(torch.tensor(1))) == []


def test_the_unfinished_protocol_says_what_is_missing():
    with pytest.raises(NotImplementedError):
        StructureAdapter().yieldTensors(Boxed(1))
    with pytest.raises(NotImplementedError):
        StructureAdapter().reconstruct(Boxed(1), iter([]))


def test_an_object_that_hides_tensors_is_found():
    hidden = Boxed(torch.tensor(1))

    assert find_opaque_holder([{"k": (hidden,)}]) is hidden


def test_a_set_of_tensors_is_an_opaque_holder():
    hidden = {torch.tensor(1)}

    assert find_opaque_holder([hidden]) is hidden


@given(structures())
def test_what_can_be_taken_apart_hides_nothing(structure):
    assert find_opaque_holder(structure) is None


@pytest.mark.usefixtures("boxes_are_known")
def test_an_object_with_an_adapter_hides_nothing():
    assert find_opaque_holder(Boxed(torch.tensor(1))) is None


# -- objects of dataclasses --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None
    unset: int = dataclasses.field(init=False, repr=False, compare=False, default_factory=int)


@dataclasses.dataclass(frozen=True)
class FrozenRecord:
    first: Any
    second: Any = None

    def __post_init__(self):
        assert not hasattr(self, "made"), "made anew"
        object.__setattr__(self, "made", True)


@pytest.mark.parametrize("kind", [Record, FrozenRecord])
def test_tensors_in_fields_are_found_and_replaced_in_a_copy(kind):
    value = kind([torch.tensor(1), "text"], kind(torch.tensor(2)))

    rebuilt = rebuild(value, ["a", "b"])

    assert [int(tensor) for tensor in flatten_tensors(value)] == [1, 2]
    assert rebuilt == kind(["a", "text"], kind("b"))
    assert int(value.second.first) == 2


def test_dictionaries_in_fields_come_in_the_order_of_the_pattern():
    value = Record({"a": torch.tensor(1), "b": torch.tensor(2)})
    like = Record({"b": None, "a": None})

    assert [int(tensor) for tensor in flatten_tensors(value, like=like)] == [2, 1]


def test_a_field_that_is_not_set_stays_so():
    value = Record(torch.tensor(1))
    del value.unset

    assert not hasattr(rebuild(value, ["a"]), "unset")


def test_tensors_beside_the_fields_are_hidden():
    value = Record(torch.tensor(1))
    assert find_opaque_holder(value) is None
    value.cache = torch.tensor(2)

    assert find_opaque_holder([value]) is value


def test_what_hides_tensors_in_a_field_is_named():
    hidden = {torch.tensor(1)}

    assert find_opaque_holder(Record(1, [hidden])) is hidden


def test_a_field_is_exchanged_by_its_name():
    assert replace_item(FrozenRecord("image", 7), "second", 8) == FrozenRecord("image", 8)
