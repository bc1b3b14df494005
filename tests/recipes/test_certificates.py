"""The last step of each recipe trains as plain PyTorch does: its model, loss, optimizer, options and first batch."""

from __future__ import annotations

import copy
import functools
from typing import Any, Dict, Optional

import pytest

import porting
from porting.api.ported_model import PortedModel
from porting.data.events import NeutrinoEvents
from porting.recipe_chain import Recipe, read_recipes
from porting.recipes.cosmictagger import workload as events
from porting.recipes.resnet50.workload import Setup

from .chains import steps_of

pytestmark = pytest.mark.slow

# a step, and one that goes on with the optimizer's state
NUM_STEPS = 2
# their last steps have no port that trains by itself
HOST_LOOPS = ("trainers",)
# a proof is of programs, and not of what they learn: networks for pictures have few and small ones, and few channels
SETTINGS = {"resnet50": (Setup(width=2, image_size=16, num_classes=4, num_images=64, batch_size=16),)}
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


@pytest.fixture
def _small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(events.SMALL, "depth", 2)
    small = functools.partial(NeutrinoEvents, 4)
    monkeypatch.setattr(events, "NeutrinoEvents", lambda _num, **how: small(**{**how, "height": 32, "width": 48}))


@pytest.mark.usefixtures("_small_events")
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_last_step_has_a_certificate(recipe: Recipe, monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(monkeypatch)
    try:
        steps_of(recipe).call(
            recipe.steps[-1].number, lambda step: step.train(NUM_STEPS, *SETTINGS.get(recipe.name, ()))
        )
    except _Called:
        pass
    monkeypatch.undo()
    if recorder.parts is None:
        assert recipe.name in HOST_LOOPS
        pytest.skip("loss and optimizer stay in a loop on the host, which is plain PyTorch's")
    parts = recorder.parts

    certificate = porting.verify(
        parts.pop("model"), parts.pop("loss"), parts.pop("batch"), steps=NUM_STEPS, **{**parts, "device": "sim"}
    )

    assert certificate.holds, str(certificate)
