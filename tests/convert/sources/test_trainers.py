"""The model of a trainer library runs on the device by one line, and the library's own class is what runs without."""

from __future__ import annotations

import pytest

from tests.convert.conversions import LOOP, convert_files, convert_text
from tests.convert.sources.programs import ACCELERATE, IGNITE, LIGHTNING, TRANSFORMERS

_TEST = '"PORT_DEVICE" in os.environ'
_DEVICE = 'device=os.environ["PORT_DEVICE"]'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (LIGHTNING, f'pl.Trainer(strategy=make_strategy({_DEVICE}) if {_TEST} else "auto", max_epochs=1)'),
        (IGNITE, f"if {_TEST}:\n    DeviceCalls(model, {_DEVICE}).install()\ntrainer = create_supervised_trainer("),
        (ACCELERATE, f"(functools.partial(PortedAccelerator, port_{_DEVICE}) if {_TEST} else Accelerator)("),
        (ACCELERATE, f'mixed_precision="no" if {_TEST} else "fp16"'),
        (TRANSFORMERS, f"(functools.partial(PortedTrainer, {_DEVICE}) if {_TEST} else Trainer)(\n    model=bert,"),
        (TRANSFORMERS, f"fp16=False if {_TEST} else True"),
    ],
)
@pytest.mark.parametrize("style", ["minimal", "idiomatic"])
def test_one_line_chooses_between_the_port_and_the_library(tmp_path, text, line, style):
    converted, made = convert_text(tmp_path, text, style=style)

    assert line in converted
    assert (made.style, made.left) == ("integration", [])


def test_an_evaluator_of_the_same_model_needs_no_line_of_its_own(tmp_path):
    converted, _made = convert_text(tmp_path, IGNITE)
    assert converted.count("DeviceCalls(model") == 1


def test_settings_for_other_devices_are_the_ports_own_for_a_port(tmp_path):
    text = LIGHTNING.replace("max_epochs=1", 'accelerator="gpu", devices=n, precision=16, max_epochs=1')
    converted, _made = convert_text(tmp_path, text)

    words = (f'accelerator="cpu" if {_TEST} else "gpu"', f"devices=1 if {_TEST} else n", "max_epochs=1")
    assert all(word in converted for word in words)


def test_unpacked_settings_get_the_strategy(tmp_path):
    converted, made = convert_text(tmp_path, LIGHTNING.replace("max_epochs=1", "**settings"))
    assert f'**({{**settings, "strategy": make_strategy({_DEVICE})' in converted
    assert not made.left


def test_a_trainer_of_the_programs_own_class_is_routed_behind_its_making(tmp_path):
    text = TRANSFORMERS.replace(" Trainer(", " Own(").replace("bert =", "class Own(Trainer):\n    pass\n\n\nbert =", 1)
    converted, _made = convert_text(tmp_path, text)
    assert f")\nif {_TEST}:\n    DeviceCalls(trainer.model, {_DEVICE}).install()\ntrainer.train()" in converted


def test_a_trainer_that_hydra_makes_gets_the_strategy(tmp_path):
    text = LIGHTNING.replace("trainer = pl.Trainer(", "trainer: pl.Trainer = hydra.utils.instantiate(cfg.trainer, ")
    converted, made = convert_text(tmp_path, f"import hydra\n{text}")
    assert f'instantiate(cfg.trainer, **({{"strategy": make_strategy({_DEVICE})' in converted
    assert not made.left


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        (LIGHTNING, "max_epochs=1", "logger, max_epochs=1", "the Trainer is given settings by their place"),
        (IGNITE, "trainer(model, ", "trainer(nn.Linear(4, 2), ", "the trainer's model has no name here"),
    ],
)
def test_what_cannot_be_decided_is_left_by_line(tmp_path, text, old, new, reason):
    _converted, made = convert_text(tmp_path, text.replace(old, new))
    assert [one.reason for one in made.left] == [reason]


def test_a_plain_loop_is_of_no_library(tmp_path):
    assert convert_files(tmp_path, {"train.py": LOOP}).style == "minimal"
