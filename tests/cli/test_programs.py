"""A program is found in a file or module, called, and read; what is wrong with it is said with its place."""

from __future__ import annotations

import sys

import pytest
import torch

from porting.cli.programs import ProgramName, load_program
from porting.diagnostics import ExecutableError

TRAIN = """
import torch
from torch import nn
from helper_of_train import WIDTH
from porting import PortOptions


class Net(nn.Linear):
    pass


def make(batch_size=8):
    model = Net(WIDTH, 3)
    batch = torch.ones(batch_size, WIDTH), torch.zeros(batch_size, dtype=torch.long)
    return model, nn.CrossEntropyLoss(), batch, torch.optim.SGD(model.parameters(), lr=0.1), PortOptions(replicas=2)


def fixed():
    model, loss, (x, y), optimizer, _ = make(3)
    return {"model": model, "loss": loss, "batch": (torch.arange(3.0)[:, None] * x, y, 7)}


def sized(batch):
    return make(batch)


def needs(width):
    return make()


def fails():
    return {}["missing"]


def stops():
    raise SystemExit(3)


def stacked(layers=1):
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _number in range(layers)))
    return model, nn.MSELoss(), (torch.ones(2, WIDTH), torch.ones(2, WIDTH))


class Parts:
    model, loss, batch = make()[:3]


class Empty:
    pass


parts, ready, model, number, short = Parts(), make(), Net(4, 3), 5, (1, 2)
wrong_model, wrong_loss = (5, None, (torch.ones(1),)), (Net(4, 3), 5, (torch.ones(1),))
no_batch, bad_optimizer = {"model": Net(4, 3)}, (Net(4, 3), None, torch.ones(2, 4), 0.1)
misspelt = {"model": Net(4, 3), "loss": None, "batch": torch.ones(2, 4), "schedul_every": "step"}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give a folder with `train.py` and what it imports; nothing of it stays loaded."""
    (tmp_path / "train_of_test.py").write_text(TRAIN)
    (tmp_path / "helper_of_train.py").write_text("WIDTH = 4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith("_of_test") or name.endswith("_of_train") or name.startswith("_porting_target"):
            del sys.modules[name]


def error_of(text, **options):
    with pytest.raises(ExecutableError) as raised:
        load_program(text, **options)
    return raised.value


@pytest.mark.parametrize("text", ["train_of_test.py:make", "train_of_test:make", "./train_of_test.py:make"])
def test_a_target_is_found_in_files_and_modules(folder, text):
    program = load_program(text)

    assert (type(program.model).__name__, program.rows, program.options.replicas) == ("Net", 8, 2)
    assert (program.name, isinstance(program.optimizer, torch.optim.SGD)) == (text, True)


@pytest.mark.parametrize("name", ["make", "sized", "fixed", "parts", "ready", "Parts"])
def test_functions_objects_tuples_and_tables_are_targets(folder, name):
    assert load_program(f"train_of_test.py:{name}", batch_size=6).rows == 6


def test_a_batch_of_another_size_is_repeated_from_the_start(folder):
    inputs, labels, number = load_program("train_of_test.py:fixed", batch_size=5).batch

    assert inputs[:, 0].tolist() == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert (labels.shape, number) == ((5,), 7)


def test_a_function_that_takes_a_number_of_layers_is_asked_for_it(folder):
    assert len(load_program("train_of_test.py:stacked", layers=3).model) == 3


@pytest.mark.parametrize("name", ["train_of_test.py:make", "train_of_test.py:fixed", "mlp:mushrooms"])
def test_no_other_can_be_asked_for_layers(folder, name):
    error = error_of(name, layers=3)

    assert error.finding.code == "E022"
    assert "cannot be asked for a number of layers" in str(error)


def test_a_batch_keeps_its_size_unless_another_is_asked_for(folder):
    assert load_program("train_of_test.py:fixed").rows == 3


@pytest.mark.parametrize("text", ["", "make", "train_of_test.py", "train_of_test.py:", "train_of_test.py:a-b", ":make"])
def test_a_text_of_another_form_is_refused(folder, text):
    assert error_of(text).code == "E020"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train_of_tests.py:make", "did you mean `train_of_test.py`"),
        ("no.py:make", "it is looked for in"),
        ("train_of_test.py:mak", "did you mean `make`"),
        ("train_of_test.py:zzz", "name one of its functions: make, fixed"),
        ("no_such_module_at_all:make", "there is no module"),
        ("train_of_test.inner:make", "there is no module"),
        ("train_of_test.py", "name the function in it"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(folder, text, said):
    error = error_of(text)

    assert error.code == "E020"
    assert said in str(error)


def test_a_class_that_is_no_target_is_shown_at_its_line(folder):
    error = error_of("train_of_test.py:Empty")

    assert (error.code, error.finding.place.line) == ("E022", 1 + TRAIN[: TRAIN.index("class Empty")].count("\n"))


@pytest.mark.parametrize(("name", "line"), [("fails", 32), ("stops", 36)])
def test_what_the_users_code_raises_is_shown_at_its_line(folder, name, line):
    error = error_of(f"train_of_test.py:{name}")

    assert (error.code, error.finding.place.line) == ("E021", line)
    assert error.finding.place.file.endswith("train_of_test.py")


def test_a_file_that_does_not_compile_is_shown_at_its_line(folder):
    (folder / "broken_of_test.py").write_text("x = 1\ndef make(:\n")

    error = error_of("broken_of_test.py:make")

    assert (error.code, error.finding.place.line) == ("E021", 2)


def test_a_folder_is_no_program_and_the_file_in_it_is_asked_for(folder):
    (folder / "folder_of_test").mkdir()

    error = error_of("folder_of_test:make")

    assert error.code == "E020"
    assert error.finding.help == ("name the file in it: `folder_of_test/FILE.py:make`",)


def test_a_missing_import_of_the_users_is_no_missing_target(folder):
    (folder / "importing_of_test.py").write_text("import no_such_module_at_all\n")

    assert error_of("importing_of_test:make").code == "E021"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model", "gives a Net"),
        ("number", "an int without model"),
        ("short", "gives 2 values"),
        ("wrong_model", "the model of"),
        ("wrong_loss", "the loss of"),
        ("no_batch", "without batch"),
        ("bad_optimizer", "the optimizer of"),
        ("misspelt", "a `schedul_every`, which is ignored: did you mean `schedule_every`"),
        ("needs", "needs arguments: width"),
        ("sized", "needs arguments: batch"),
    ],
)
def test_what_makes_no_step_is_refused(folder, name, said):
    error = error_of(f"train_of_test.py:{name}")

    assert error.code == "E022"
    assert said in error.finding.message


def test_an_outline_tells_files_from_modules():
    assert [ProgramName.of(text).is_file for text in ("a.py:b", "a/b:c", "a.b:c")] == [True, True, False]


def test_a_batch_of_names_stays_one_and_is_cut(folder):
    (folder / "named_of_test.py").write_text(
        TRAIN + "def named():\n    return Net(4, 3), None, {'x': torch.ones(8, 4), 'scale': torch.tensor(2.0)}\n"
    )

    batch = load_program("named_of_test.py:named", batch_size=3).batch

    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {"x": (3, 4), "scale": ()}


def test_the_places_of_parts_are_known(folder):
    places = load_program("train_of_test.py:make").places

    assert {name: place.line for name, place in places.items()} == {
        "": 12,
        "model": 13,
        "batch": 14,
        **dict.fromkeys(["loss", "optimizer", "options"], 15),
    }
