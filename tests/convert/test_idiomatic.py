"""A converted program trains on the simulator as the plain one does, and without it bit by bit as before."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from porting.check.preflight import assemble_report, look_at_sources
from porting.convert.conversion import plan_conversion
from tests.convert.training_programs import HEAD, convert_idiomatic, train_all_ways, write_loop

MINIATURE = Path(__file__).parent / "miniature"
STEP = ("optimizer.zero_grad()", "loss.backward()", "optimizer.step()")

PROGRAMS = {
    "a criterion": write_loop("output = model(x)", "loss = criterion(output, y)", *STEP),
    "a function of torch": write_loop("output = model(x)", "loss = F.cross_entropy(output, y)", *STEP),
    "nested calls": write_loop("loss = criterion(model(x), y)", *STEP),
    "several statements": write_loop(
        "output = model(x)",
        "penalty = output.pow(2).mean()",
        "loss = criterion(output, y) + 0.1 * penalty",
        *STEP,
        "print(penalty.item())",
    ),
    "no label but the input": write_loop(
        "output = model(x)", "loss = F.mse_loss(output, x)", *STEP, head=HEAD.replace("(4, 3)", "(4, 4)")
    ),
    "a sum": write_loop(
        "output = model(x)",
        "loss = 0",
        "for row in range(2):",
        "    loss += criterion(output[row], y[row])",
        *STEP,
    ),
    "labels made behind the output": write_loop(
        "output = model(x)", "target = F.one_hot(y, 3).float()", "loss = F.mse_loss(output, target)", *STEP
    ),
    "clipping and a schedule": write_loop(
        "optimizer.zero_grad()",
        "output = model(x)",
        "loss = criterion(output, y)",
        "loss.backward()",
        "nn.utils.clip_grad_norm_(model.parameters(), 0.05)",
        "optimizer.step()",
        "schedule.step()",
        head=HEAD + "schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)\n",
    ),
    "the whole of the data": HEAD
    + "x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))\n"
    + "for step in range(4):\n    output = model(x)\n    loss = criterion(output, y)\n"
    + "".join(f"    {line}\n" for line in STEP),
    "a function for an epoch, and an evaluation": HEAD
    + """
def train(net, loader, optimizer):
    net.train()
    for x, y in loader:
        output = net(x)
        loss = criterion(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def test(net, loader):
    net.eval()
    with torch.no_grad():
        return sum(criterion(net(x), y).item() for x, y in loader)

def main():
    loader = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(2)]
    for epoch in range(2):
        train(model, loader, optimizer)
        print(test(model, loader))

if __name__ == "__main__":
    main()
""",
    "a class": HEAD
    + """
class Trainer:
    def __init__(self, net, rate):
        self.net = net
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=rate)

    def fit(self):
        for step in range(4):
            x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
            self.optimizer.zero_grad()
            output = self.net(x)
            loss = self.criterion(output, y)
            loss.backward()
            self.optimizer.step()

Trainer(model, 0.01).fit()
""",
    "a model that returns its loss": """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, y):
        output = self.layer(x)
        return output, nn.functional.cross_entropy(output, y)

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    output, loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_port_trains_as_the_plain_program_and_the_plain_program_as_before(tmp_path, monkeypatch, name):
    text = train_all_ways(tmp_path, PROGRAMS[name], monkeypatch)
    assert text.count("to_ipu(") == 1


def test_the_step_becomes_one_call_and_stays_as_it_was_beside_it(tmp_path):
    text = convert_idiomatic(tmp_path, PROGRAMS["a criterion"])
    assert (
        """\
    if isinstance(model, PortedModel):
        output, loss = model(x, y)
    else:
        output = model(x)
        loss = criterion(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
        in text
    )
    assert 'model = to_ipu(model, criterion, optimizer=optimizer, device=os.environ["PORT_DEVICE"])\nfor step' in text


def test_a_second_conversion_finds_nothing_to_do(tmp_path):
    text = convert_idiomatic(tmp_path, PROGRAMS["a criterion"])
    (tmp_path / "train.py").write_text(text)
    again = plan_conversion(str(tmp_path), "train.py", style="idiomatic")
    assert not again.changed


@pytest.mark.parametrize("last", ["", ", drop_last=True"])
def test_a_port_that_torchs_loader_feeds_gets_executables_for_smaller_batches_and_check_finds_nothing(tmp_path, last):
    head = HEAD + "data = torch.utils.data.TensorDataset(torch.randn(9, 4), torch.zeros(9).long())\n"
    loop = "for x, y in torch.utils.data.DataLoader(data, 4{0}):\n" + "".join(
        f"    {line}\n" for line in ("loss = criterion(model(x), y)", *STEP)
    )
    text = convert_idiomatic(tmp_path, head + loop.format(last))
    assert "PortOptions(max_executables=8)" in text
    (tmp_path / "train.py").write_text(text)
    report = assemble_report("train.py", look_at_sources([str(tmp_path / "train.py")]))
    assert report.is_clean, report.codes


# -- a project with the anatomy of a large one ------------------------------------------------------------------------


@pytest.fixture
def converted(tmp_path):
    made = plan_conversion(str(MINIATURE / "plain"), "bin/exec.py", style="idiomatic")
    assert not made.left
    folder = tmp_path / "converted"
    shutil.copytree(MINIATURE / "plain", folder)
    for name, text in made.changed.items():
        (folder / name).write_bytes(text)
    return made, folder


def read_trainer(name="ported"):
    return (MINIATURE / name / "src" / "utils" / "trainer.py").read_text()


def read_method(name, text=None):
    found = re.search(rf"    def {name}\(.*?(?=\n    def |\Z)", text or read_trainer(), re.DOTALL)
    assert found is not None
    return found[0]


def test_the_miniature_is_converted_as_its_golden_conversion(converted):
    made, folder = converted
    assert sorted(made.changed) == ["src/config/config.py", "src/utils/trainer.py"]
    for path in (MINIATURE / "ported").rglob("*.py"):
        assert filecmp.cmp(path, folder / path.relative_to(MINIATURE / "ported"), shallow=False)
    assert made.option.make_arguments("sim") == ("run.compute_mode=IPU",)


def run_miniature(folder, output, *words):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(folder / "bin" / "exec.py"), f"run.output_dir={output}", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.slow
def test_the_miniature_trains_on_the_simulator_as_on_the_cpu_for_20_steps(tmp_path):
    plain = run_miniature(MINIATURE / "plain", tmp_path / "plain")
    as_before = run_miniature(MINIATURE / "ported", tmp_path / "before")
    on_port = run_miniature(MINIATURE / "ported", tmp_path / "port", "run.compute_mode=IPU")

    numbers = [[float(one) for line in lines for one in re.findall(r"\d+\.\d+", line)] for lines in (plain, on_port)]
    assert len([line for line in plain if line.startswith("train")]) == 20
    assert as_before == plain
    assert numbers[1] == pytest.approx(numbers[0], abs=2e-5)


@pytest.mark.slow
def test_the_checkpoint_of_a_port_goes_on_without_one(tmp_path):
    import torch

    words = ("run.iterations=11",)
    run_miniature(MINIATURE / "plain", tmp_path / "plain", *words)
    run_miniature(MINIATURE / "ported", tmp_path / "port", "run.compute_mode=IPU", *words)
    plain, port = (torch.load(tmp_path / name / "model-10.ckpt") for name in ("plain", "port"))
    assert list(port["state_dict"]) == list(plain["state_dict"])
    assert port["optimizer"]["param_groups"] == plain["optimizer"]["param_groups"]
    for one, other in zip(plain["optimizer"]["state"].values(), port["optimizer"]["state"].values()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_required_edits_of_a_large_trainer_are_there():
    config = (MINIATURE / "ported" / "src" / "config" / "config.py").read_text()
    place = read_method("initialize")
    assert "    XPU   = 3\n    IPU   = 4\n" in config  # E1
    assert "try:\n    from porting import PortedModel, to_ipu\nexcept ImportError:" in read_trainer()  # E2
    assert "self._net = to_ipu(" in place  # E3
    assert place.index("self._net.to(self.default_device())") < place.index("to_ipu(")  # E4
    assert place.index("self._net.bfloat16()") < place.index("to_ipu(")  # E5
    assert place.index("self.init_optimizer()") < place.index("optimizer=self._opt")  # E6
    assert "lambda logits_image, labels_image: self.loss_calculator(labels_image, logits_image)" in place  # E7
    helper = read_method("forward_pass")
    assert "return logits_image, labels_image, loss\n        return logits_image, labels_image" in helper  # E8
    assert "logits_image, labels_image, loss = self.forward_pass(minibatch_data)" in read_method("train_step")  # E9
    assert read_method("val_step") == read_method("val_step", read_trainer("plain"))  # E10: `eval()` is inference


def test_forbidden_edits_of_a_large_trainer_are_not_there(converted):
    made, _folder = converted
    assert all("hydra" not in diff for diff in made.diffs)  # E13
    assert "src/utils/trainercore.py" not in made.changed  # E14


def test_defects_of_ports_by_hand_are_not_there():
    """D7 is the plain project's own option, D13 and D16 are lines that a conversion leaves as they are."""
    text, step, place = read_trainer(), read_method("train_step"), read_method("initialize")
    assert ".to(" not in place[place.index("to_ipu(") :].replace("to_ipu(", "")  # D1
    assert "optimizer=self._opt" in place  # D2
    for call in ("self._opt.zero_grad()", "loss.backward()", "self._opt.step()"):
        lines = step[: step.index(call)].split("\n")[::-1]
        around = [line for line in lines if "ComputeMode.IPU" in line or line.strip().startswith(("with", "for"))]
        assert around[0].strip() == "if self.args.run.compute_mode != ComputeMode.IPU:"  # D3
    assert "self._net.eval()" in read_method("val_step")  # D4
    assert "and self._net.training" in read_method("forward_pass")  # D4, D5
    assert "import poptorch" not in text  # D6
    assert "num_replicas" not in text  # D7
    assert "Precision.bfloat16" in place  # D8
    assert "def forward" not in "".join(line for line in text.split("\n") if "loss_calculator=None" in line)  # D9
    assert "grad_accum != 1" in step  # D10
    assert "labels_image = self._net" not in text  # D11
    assert "Options(" not in text  # D14
    assert "process.log" not in text  # D15
