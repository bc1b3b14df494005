"""What an update makes not finite is named, with what it was made of."""

from __future__ import annotations

from typing import Any, Dict

import pytest
import torch

from porting.engines.calls.group_settings import GroupSettings, OptimizerKind
from porting.nan_search import UpdateRecords

NAN = float("nan")


class Watched:
    """Two parameters, `a.weight` with a state, and the records of their updates."""

    def __init__(self, **state: float) -> None:
        self.parameters = {"a.weight": torch.ones(2), "b": torch.ones(2)}
        self.slots: Dict[str, Dict[str, torch.Tensor]] = {
            "a.weight": {name: torch.full((2,), value) for name, value in state.items()}
        }
        settings = GroupSettings(kind=OptimizerKind.ADAM, learning_rate=0.5, eps=0.0)
        self.records = UpdateRecords([settings], [["a.weight", "b"]], parameters=self.parameters, slots=self.slots)

    def end_update(self) -> Any:
        return self.records.end_update(self.parameters, self.slots)


def test_a_finite_update_is_none() -> None:
    assert Watched(Accl1=0.0).end_update() is None


def test_a_weight_is_named_with_what_went_into_it() -> None:
    watched = Watched(Accl1=0.0)
    watched.records.note_gradient("a.weight", torch.tensor([1.0, 2.0]))
    watched.parameters["a.weight"][1] = NAN

    fault = watched.end_update()

    assert (fault.phase, fault.name, fault.module_path, fault.operator.name) == ("update", "a.weight", "a", "ADAM")
    assert [value.name for value in fault.inputs] == ["weight a.weight", "gradient", "Accl1 of a.weight"]
    assert fault.result.num_nan == 1
    assert "learning_rate 0.5, eps 0" in fault.notes[-1]


def test_a_state_that_stays_finite_leaves_the_step() -> None:
    watched = Watched(Accl1=0.0)
    watched.parameters["a.weight"][1] = NAN

    assert "state stays finite" in watched.end_update().notes[0]


def test_a_state_that_does_not_comes_first() -> None:
    watched = Watched(Accl1=0.0, Accl2=0.0)
    watched.parameters["a.weight"][1] = NAN
    watched.slots["a.weight"]["Accl2"][0] = float("inf")

    assert "state comes first" in watched.end_update().notes[0]
    assert "Accl2 of a.weight: float32[2] all 0, 1 of 2 infinite" in watched.end_update().notes[0]


def test_a_state_is_named_alone_if_the_weights_are_finite() -> None:
    watched = Watched(Accl1=0.0)
    watched.slots["a.weight"]["Accl1"][0] = NAN

    fault = watched.end_update()

    assert (fault.name, fault.result.name) == ("a.weight", "Accl1 of a.weight")


def test_an_optimizer_without_state_has_no_part_to_name() -> None:
    watched = Watched()
    watched.parameters["b"][0] = NAN

    assert [note.partition(":")[0] for note in watched.end_update().notes] == ["settings"]


def test_a_state_that_was_not_finite_before_is_said_to_be_the_origin() -> None:
    watched = Watched(Accl1=NAN)
    watched.parameters["a.weight"][0] = NAN

    assert "of Accl1 of a.weight, which was not finite before" in watched.end_update().message


@pytest.mark.parametrize("num_finite", [0, 1])
def test_what_was_so_before_the_first_update_is_not_its_fault(num_finite: int) -> None:
    watched = Watched(Accl1=NAN)

    for _ in range(num_finite):
        assert watched.end_update() is None
    assert watched.end_update() is None
