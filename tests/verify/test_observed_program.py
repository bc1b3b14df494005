"""A program is observed as it runs: its steps, losses, gradients, settings, samples and evaluations."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.diagnostics import ExecutableError, PortingError
from porting.verify.observation import ProjectRun
from porting.verify.plain_runs import Perturbation
from porting.verify.program_runs import ProgramPair, ProgramRuns

BEGIN = """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x = torch.ones(4, 3)
"""
STEP = "    optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step()\n"
LOOP = f"{BEGIN}for number in range(20):\n{STEP}"

pytestmark = pytest.mark.usefixtures("fork_programs")


@pytest.fixture
def observe(tmp_path, monkeypatch):
    """Run a program, given as text, and return what was observed."""
    monkeypatch.chdir(tmp_path)

    def run(source, *, steps=3, arguments=(), is_port=False, project=None, **perturbation):
        Path("program.py").write_text(source)
        pair = ProgramPair("program.py", "program.py", arguments, arguments)
        runs = ProgramRuns(pair, 0, "sim", lambda _stage: None, ported_project=project)
        return runs.run_port(steps) if is_port else runs.run_plain(steps, Perturbation("", **perturbation))[0]

    return run


@pytest.mark.slow
def test_a_program_is_ended_once_it_has_made_its_steps(observe):
    (training,) = observe(LOOP).trainings

    assert training.record.num_steps == 3


def test_the_end_is_no_error_to_a_program_that_catches_exceptions(observe):
    observed = observe(f"{BEGIN}for number in range(20):\n  try:\n{STEP}  except Exception: raise SystemExit(3)")

    assert (observed.error, observed.trainings[0].record.num_steps) == ("", 3)


def test_parameters_have_their_names_and_places_are_the_users_lines(observe):
    (training,) = observe(LOOP).trainings

    assert set(training.record.sketches["parameter", 0]) == {"weight", "bias"}
    assert [(Path(place.file).name, place.line) for place in training.places.values()] == [("program.py", 8)] * 2


def test_the_loss_of_a_step_is_the_sum_of_what_is_differentiated(observe):
    parts = "    for part in x.chunk(2): (model(part).mean() / 2).backward()\n    optimizer.step()"
    divided = f"{BEGIN}for number in range(2):\n{parts}"

    (training,) = observe(divided).trainings

    losses = training.record.losses[1]
    assert len(losses) == training.micro_batches == 2
    assert sum(losses) / 2 == pytest.approx(2 * losses[0] / 2)


def test_a_closure_is_a_part_of_its_step(observe):
    closure = (
        f"{BEGIN}def closure():\n    optimizer.zero_grad(); loss = model(x).mean(); loss.backward(); return loss\n"
    )

    (training,) = observe(f"{closure}for number in range(2): optimizer.step(closure)").trainings

    assert [len(training.record.losses[step]) for step in (1, 2)] == [1, 1]
    assert set(training.record.sketches["gradient", 1]) == {"weight", "bias"}


def test_gradients_are_those_before_clipping_and_the_norm_is_a_setting(observe):
    clipped = LOOP.replace("optimizer.step()", "nn.utils.clip_grad_norm_(model.parameters(), 1e-3); optimizer.step()")
    own, plain = (observe(source).trainings[0].record for source in (clipped, LOOP))

    assert own.sketches["gradient", 1]["weight"].norm == plain.sketches["gradient", 1]["weight"].norm
    assert own.settings[1]["weight"]["max_grad_norm"] == 1e-3


def test_two_optimizers_are_two_trainings_in_the_order_of_their_first_steps(observe):
    second = "other = nn.Linear(2, 1); last = torch.optim.Adam(other.parameters())\n"
    steps = "    last.zero_grad(); other(model(x)).mean().backward(); last.step(); optimizer.step()\n"

    first, then = observe(f"{BEGIN}{second}for number in range(20):\n{steps}").trainings

    assert set(first.record.settings[1]) == {"1.weight", "1.bias"} or set(first.record.settings[1]) == {
        "weight",
        "bias",
    }
    assert first.record.settings[1][min(first.record.settings[1])]["class"] == "Adam"
    assert then.record.settings[1][min(then.record.settings[1])]["class"] == "SGD"


def test_an_optimizer_after_a_restart_goes_on_with_the_training(observe):
    restart = f"{BEGIN}for number in range(2):\n{STEP}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

    (training,) = observe(f"{restart}for number in range(2):\n{STEP}", steps=9).trainings

    assert [training.record.rates[step] for step in (1, 2, 3, 4)] == [[0.5], [0.5], [0.1], [0.1]]


def test_samples_have_a_number_each(observe):
    (training,) = observe(LOOP.replace("torch.ones(4, 3)", "torch.arange(12.0).reshape(4, 3)")).trainings

    (rows,) = training.rows[1]
    assert len(set(rows.tolist())) == 4


def test_what_is_evaluated_after_a_step_is_kept(observe):
    (training,) = observe(f"{LOOP}    with torch.no_grad(): number == 1 and model(x)").trainings

    assert training.record.list_steps("evaluation") == [2]


def test_what_a_model_draws_is_not_drawn_from_the_loops_stream(observe):
    drawn = LOOP.replace("nn.Linear(3, 2)", "nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))")
    loops = [source.replace("model(x)", "model(torch.randn(4, 3))") for source in (LOOP, drawn)]

    plain, with_dropout = (observe(source).trainings[0] for source in loops)

    assert (plain.draws, with_dropout.draws) == (False, True)
    assert all(bool((plain.rows[step][0] == with_dropout.rows[step][0]).all()) for step in (1, 2, 3))


def test_a_run_that_is_rounded_otherwise_differs_in_last_digits(observe):
    plain, bits, rounded = (
        observe(LOOP, **perturbation).trainings[0].record.losses[3][0]
        for perturbation in ({}, {"changes_bits": 1}, {"rounding": 1, "size": 1e-6})
    )

    assert plain != bits != rounded
    assert plain == pytest.approx(bits, rel=1e-4) == pytest.approx(rounded, rel=1e-4)


def test_a_device_call_is_as_many_steps_as_it_makes(observe):
    ported = f"""{BEGIN}
from porting import PortOptions, to_ipu
options = PortOptions(device_iterations=2, keep_gradients=True, output_mode="all")
ported = to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options)
for number in range(20): ported(x, torch.zeros(4, 2))
"""

    (training,) = observe(ported, steps=4, is_port=True).trainings

    assert (training.is_on_device, training.steps_per_call, training.record.num_steps) == (True, 2, 4)
    assert training.record.list_steps("parameter") == [0, 2, 4]
    assert all(len(training.record.losses[step]) == 1 for step in (1, 2, 3, 4))
    assert training.record.list_steps("gradient") == [2, 4]


def test_the_loss_of_a_port_is_none_of_the_terms_and_metrics_that_it_returns_behind_it(observe):
    ported = f"""{BEGIN}
from porting import LossTerm, to_ipu
losses = {{"a": LossTerm(nn.MSELoss()), "b": LossTerm(nn.L1Loss(), weight=3.0)}}
metrics = {{"half": lambda output, label: torch.tensor(0.5)}}
returns = ["output", "loss", "losses", "metrics"]
ported = to_ipu(model, losses, optimizer=optimizer, metrics=metrics, returns=returns)
for number in range(2):
    _output, loss, terms, metrics = ported(x, torch.zeros(4, 2))
    assert loss == terms["a"] + terms["b"]
"""
    plain = f"""{BEGIN}
for number in range(2):
    optimizer.zero_grad()
    output = model(x)
    (output.square().mean() + 3 * output.abs().mean()).backward()
    optimizer.step()
"""

    (training,) = observe(ported, steps=2, is_port=True).trainings

    (reference,) = observe(plain, steps=2).trainings
    assert training.record.losses[2] == pytest.approx(reference.record.losses[2])


def test_gradients_of_a_project_are_kept_also_where_one_part_has_all_weights(observe, tmp_path):
    source = BEGIN.replace("nn.Linear(3, 2)", "nn.Sequential(nn.Linear(3, 2))")
    port = "from porting import to_ipu\nported = to_ipu(model, nn.MSELoss(), optimizer=optimizer)\n"

    project = ProjectRun((str(tmp_path),))
    (training,) = observe(f"{source}{port}ported(x, torch.zeros(4, 2))", is_port=True, project=project).trainings

    assert set(training.record.sketches["gradient", 1]) == {"0.weight", "0.bias"}


def test_gradients_of_a_project_are_kept_also_where_a_part_has_the_names_of_the_whole(observe, tmp_path):
    model = "class Net(nn.Linear):\n    def forward(self, x):\n        return self.part(super().forward(x))\n"
    model += "model = Net(3, 2)\nmodel.part = nn.Linear(2, 2)"
    port = "from porting import to_ipu\nported = to_ipu(model, nn.MSELoss(), optimizer=optimizer)\n"

    source = f"{BEGIN.replace('model = nn.Linear(3, 2)', model)}{port}ported(x, torch.zeros(4, 2))"
    (training,) = observe(source, is_port=True, project=ProjectRun((str(tmp_path),))).trainings

    assert {name: sketch.shape for name, sketch in training.record.sketches["gradient", 1].items()} == {
        "weight": (2, 3),
        "bias": (2,),
        "part.weight": (2, 2),
        "part.bias": (2,),
    }


def test_a_step_on_the_host_of_what_a_device_trains_is_none(observe):
    ported = f"{BEGIN}from porting import to_ipu\nported = to_ipu(model, nn.MSELoss(), optimizer=optimizer)\n"

    (training,) = observe(f"{ported}ported(x, torch.zeros(4, 2)); optimizer.step()", is_port=True).trainings

    assert training.record.num_steps == 1


def test_what_a_port_runs_to_look_at_itself_is_no_evaluation(observe):
    net = "class Net(nn.Linear):\n    def forward(self, x): return x, super().forward(x)\n"
    begin = BEGIN.replace("model =", f"{net}model =").replace("nn.Linear(3, 2)", "Net(3, 2)")
    ported = f"""{begin}
from porting import to_ipu
ported = to_ipu(model, lambda output, label: (output[1] - label).square().mean(), optimizer=optimizer)
for number in range(20):
    ported(x, torch.zeros(4, 2))
    number == 0 and ported.inference()(x)
"""

    (training,) = observe(ported, is_port=True).trainings

    assert training.record.num_steps == 3
    assert training.record.list_steps("evaluation") == [1]


def test_arguments_reach_the_program(observe):
    counted = LOOP.replace("range(20)", "range(int(__import__('sys').argv[1]))")

    assert observe(counted, arguments=("2",)).trainings[0].record.num_steps == 2


def test_a_program_finds_the_present_folder_and_leaves_nothing_in_it(observe, tmp_path):
    (tmp_path / "data").write_text("2")

    observe(f"open('made', 'w').write(open('data').read())\n{LOOP}")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "program.py"]


def test_modules_beside_the_program_are_found(observe, tmp_path):
    (tmp_path / "settings_of_program.py").write_text("STEPS = 2")

    observed = observe(LOOP.replace("range(20)", "range(__import__('settings_of_program').STEPS)"))

    assert observed.trainings[0].record.num_steps == 2


def test_an_error_after_steps_is_told_with_them(observe):
    observed = observe(f"{LOOP}    if number: raise ValueError('no more')")

    assert observed.error == "ValueError: no more"
    assert (observed.place.line, observed.trainings[0].record.num_steps) == (9, 2)


def test_a_program_that_fails_is_a_finding_with_its_place_and_its_last_words(observe):
    with pytest.raises(ExecutableError) as refused:
        observe("print('the last words')\nraise ValueError('no data')")

    finding = refused.value.finding
    assert (finding.code, finding.message) == ("E021", "running `program.py` failed: ValueError: no data")
    assert (finding.place.line, finding.notes) == (2, ("the last that it wrote:", "the last words"))


def test_a_program_that_does_not_parse_is_a_finding(observe):
    with pytest.raises(ExecutableError, match="SyntaxError"):
        observe("def (")


def test_a_program_that_dies_is_a_finding(observe):
    with pytest.raises(ExecutableError, match="signal 9"):
        observe("import os; os.kill(os.getpid(), 9)")


def test_a_status_that_is_not_zero_is_an_error(observe):
    with pytest.raises(ExecutableError, match="SystemExit: 3"):
        observe("raise SystemExit(3)")


def test_a_program_without_a_step_cannot_be_compared(observe):
    with pytest.raises(PortingError) as refused:
        observe("print('nothing')")

    assert (refused.value.code, refused.value.finding.message) == ("V002", "`program.py` makes no step of an optimizer")
