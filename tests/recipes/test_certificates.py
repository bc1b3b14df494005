"""The last step of each recipe trains as plain PyTorch does: its model, loss, optimizer, options and first batch."""

from __future__ import annotations

import copy
from typing import Any, Dict, Optional

import pytest

import porting
from porting.api.ported_model import PortedModel
from porting.recipe_chain import Recipe, read_recipes

pytestmark = pytest.mark.slow

# a step, and one that goes on with the optimizer's state
NUM_STEPS = 2
# their last steps have no port that trains by itself
WITHOUT_PORT = ("trainers", "convert_your_project")
RECIPES = [pytest.param(recipe, id=recipe.name) for recipe in read_recipes()]


class _Called(BaseException):
    """The training has come to its first call."""


class Recorder:
    """Takes down how a program makes its port, and with which batch it first trains; there the program ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Dict[int, Dict[str, Any]] = {}
        self.parts: Optional[Dict[str, Any]] = None
        to_ipu, call = porting.to_ipu, PortedModel.__call__

        def make_port(model: Any, loss: Any = None, **settings: Any) -> Any:
            # copied as one, so that the optimizer goes on having the parameters of the model
            model_copy, optimizer = copy.deepcopy((model, settings.get("optimizer")))
            ported = to_ipu(model, loss, **settings)
            self.made[id(ported)] = {"model": model_copy, "loss": loss, **settings, "optimizer": optimizer}
            return ported

        def train_once(ported: Any, *args: Any, **kwargs: Any) -> Any:
            parts = self.made.get(id(ported))
            if parts is None or not ported.training or parts["optimizer"] is None:
                return call(ported, *args, **kwargs)
            # what comes back besides the loss is none of a training
            training = {name: part for name, part in parts.items() if name not in ("metrics", "returns")}
            self.parts = {**training, "batch": args or kwargs}
            raise _Called

        monkeypatch.setattr(porting, "to_ipu", make_port)
        monkeypatch.setattr(PortedModel, "__call__", train_once)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_last_step_has_a_certificate(recipe: Recipe, train_small: Any, monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(monkeypatch)
    try:
        train_small(recipe, NUM_STEPS)
    except _Called:
        pass
    monkeypatch.undo()
    if recorder.parts is None:
        assert recipe.name in WITHOUT_PORT
        pytest.skip("the loop on the host is plain PyTorch's")
    parts = recorder.parts

    certificate = porting.verify(
        parts.pop("model"), parts.pop("loss"), parts.pop("batch"), steps=NUM_STEPS, **{**parts, "device": "sim"}
    )

    assert certificate.holds, str(certificate)
