"""Each kind of fix is proven on a program that runs: it trains as plain PyTorch does, and nothing is found again."""

from __future__ import annotations

import io
import runpy
import sys
import tokenize
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("libcst", reason="needs the extra `fix`")

from porting.cli.main import main
from porting.source.checks import check_source
from porting.source.patches.edits import EDITS
from porting.source.patches.fixes import propose_fixes
from porting.source.project import read_programs

CORPUS = Path(__file__).parents[1] / "programs"

PORT = """\
import torch
from torch import nn

from porting import to_ipu

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.hidden(x).tanh())


model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ported = to_ipu(model, criterion, optimizer=optimizer)
batches = [(torch.rand(8, 4), torch.randint(3, (8,))) for _ in range(10)]
for x, y in batches:
    output, loss = ported(x, y)
weights = ported.state_dict()
"""

IN_FORWARD = "        return self.last(self.hidden(x).tanh())\n"
IN_LOOP = "    output, loss = ported(x, y)\n"
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

VENDOR = """\
import argparse

import torch
from torch import nn
import poptorch

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = nn.Linear(4, 16), nn.Linear(16, 3)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, y=None):
        output = self.last(self.hidden(x).tanh())
        if y is None:
            return output
        return output, poptorch.identity_loss(self.criterion(output, y), reduction="none")


parser = argparse.ArgumentParser()
parser.add_argument("--use-ipu", action="store_true", default=True)
args = parser.parse_args([])
model = Net()
if args.use_ipu:
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    ported = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    batches = [(torch.rand(8, 4), torch.randint(3, (8,))) for _ in range(10)]
    for x, y in batches:
        output, loss = ported(x, y)
    ported.copyWeightsToHost()
weights = model.state_dict()
"""


@dataclass
class Case:
    """A program with a fault: what takes the place of which line, and what it ends with, nothing if it ends well."""

    line: str
    becomes: str
    ends_with: str = ""
    program: str = PORT


CASES = {
    "B022": Case(IN_LOOP, "    x == x.contiguous()\n" + IN_LOOP),
    "C004": Case(IN_FORWARD, "        return self.last(self.hidden(x).cpu().tanh())\n", ends_with="C004"),
    "C010": Case(
        IN_FORWARD,
        "        hidden = self.hidden(x)\n        print('hidden:', hidden)\n        return self.last(hidden.tanh())\n",
        ends_with="C010",
    ),
    "C011": Case(
        IN_FORWARD,
        "        shift = torch.zeros(x.shape[0], 16)\n        return self.last((self.hidden(x) + shift).tanh())\n",
    ),
    "C026": Case(IN_FORWARD, "        x += 0.0\n        x.clamp_(-10, 10)\n" + IN_FORWARD),
    "D003": Case(
        "batches = ", "ported = ported.to('cpu')\nported = nn.DataParallel(ported)\nbatches = ", ends_with="D003"
    ),
    "D010": Case("", "", ends_with="No module named .poptorch", program=VENDOR),
    "K006": Case("weights = ", "torch.save(ported, 'port.pt')\nweights = ", ends_with="state_dict"),
    "L010": Case(IN_LOOP, IN_LOOP + "    loss.backward()\n", ends_with="O007"),
    "O007": Case(IN_LOOP, IN_LOOP + "    optimizer.step()\n"),
    "O008": Case(IN_LOOP, "    optimizer.zero_grad()\n" + IN_LOOP),
    "O010": Case(
        IN_LOOP,
        "    optimizer.zero_grad()\n" + IN_LOOP + "    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
        "    scaler.step(optimizer)\n    scaler.update()\n",
        ends_with="does not require grad",
    ),
    "O016": Case(
        IN_LOOP,
        "    with ported.no_sync():\n        # several\n        output, loss = ported(x, y)\n",
        ends_with="no_sync",
    ),
}


def write_program(path, code):
    case = CASES[code]
    text = case.program
    if case.line:
        assert case.line in text
        text = text.replace(case.line, case.becomes)
    if code == "O010":
        text = text.replace(OPTIMIZER, OPTIMIZER + "scaler = torch.amp.GradScaler('cpu')\n")
    path.write_text(text)


def train_plainly():
    """Train the same model on the same batches without a port; return its weights."""
    torch.manual_seed(0)
    hidden, last = nn.Linear(4, 16), nn.Linear(16, 3)
    model = nn.Sequential(hidden, nn.Tanh(), last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.rand(8, 4), torch.randint(3, (8,))) for _ in range(10)]
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {
        f"{name}.{part}": value
        for name, layer in (("hidden", hidden), ("last", last))
        for part, value in layer.state_dict().items()
    }


def run_program(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the program does wrong
        return runpy.run_path(str(path), run_name="__main__")["weights"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "poptorch"]:
        monkeypatch.delitem(sys.modules, name)


def test_every_fix_is_proven():
    assert set(CASES) == set(EDITS)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_fixed_program_trains_as_plain_pytorch_does_and_nothing_is_found_in_it(code, tmp_path, capsys):
    path = tmp_path / "train.py"
    write_program(path, code)
    case = CASES[code]

    # it is found by the rules, and the program ends as the case says
    assert main(["check", "train.py"]) == 1
    assert f"[{code}]" in capsys.readouterr().out
    if case.ends_with:
        with pytest.raises(Exception, match=case.ends_with):
            run_program(path)
        before = None
    else:
        before = run_program(path)

    status = main(["check", "train.py", "--fix"])
    output = capsys.readouterr().out
    assert status == 0, output
    assert "fixed: " in output

    expected, after = train_plainly(), run_program(path)
    assert set(after) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(after[name], value, rtol=1e-5, atol=1e-6)
        if before is not None:
            torch.testing.assert_close(before[name], after[name], rtol=1e-5, atol=1e-6)
    assert main(["check", "train.py"]) == 0


HOST_BESIDE_PORT = """\

class Plain:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.ported = to_ipu(self.model, criterion, optimizer=self.optimizer)

    def host_step(self, x, y):
        self.optimizer.zero_grad()
        loss = criterion(self.model(x), y)
        loss.sum().backward()
        self.optimizer.step()


plain = Plain()
for x, y in batches:
    plain.host_step(x, y)
weights = plain.model.state_dict()
plain.ported(*batches[0])
"""


def test_the_steps_of_a_model_on_the_host_stay_beside_a_port(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text(PORT.replace("weights = ported.state_dict()\n", HOST_BESIDE_PORT))
    before = {name: value.clone() for name, value in run_program(path).items()}

    main(["check", "train.py", "--fix"])
    after = run_program(path)

    capsys.readouterr()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value)


def test_a_fix_keeps_line_ends_tabs_the_encoding_and_what_stands_before_it(tmp_path, capsys):
    path = tmp_path / "train.py"
    lines = IN_FORWARD.replace("(x)", "(x) + shift").replace("self.hidden(x) + shift", "(self.hidden(x) + shift)")
    factory = "        é = 'ä'; shift = torch.ones(x.shape[0], 16)  # Zoë\n"
    text = "# -*- coding: latin-1 -*-\n" + PORT.replace(IN_FORWARD, factory + lines).replace("    ", "\t")
    content = text.replace("\n", "\r\n").encode("latin-1")
    path.write_bytes(content)
    before = run_program(path)

    main(["check", "train.py", "--fix"])

    capsys.readouterr()
    assert path.read_bytes() == content.replace(b", 16)  #", b", 16, device=x.device)  #")
    assert {name: value.tolist() for name, value in run_program(path).items()} == {
        name: value.tolist() for name, value in before.items()
    }


TRAPS = {
    "numpy": "cost = x.detach().cpu().numpy()\n        x = x + float(cost.mean())",
    "a variable": "cost = x.cpu()\n        rows = np.sort(cost.detach())\n        x = x + float(rows.mean())",
    "an index": "order = torch.arange(4).tolist()\n        x = x[:, order]",
    "a count": "print(self.count())",
    "an alias": "kept = x\n        x += 1.0\n        x = x - kept + kept",
    "a comparison": "self.hidden.in_features == 4",
    "a number that is an input": "x = x + (0.5 * torch.ones(4)) * self.rate(0.5)",
    "the order of memory": "turned = x.t()\n        turned == turned.contiguous()\n        x = turned.t()",
    "another value": "y = x\n        y == y.relu()\n        x = y",
    "random numbers": "x = x + torch.rand(4) * torch.zeros(4).uniform_()",
    "a result on the host": "self.calls += int(torch.ones(3).numpy().sum())",
    "a name that is bound again": "x = x.unbind(0)\n        x = torch.stack(x) + torch.zeros(4)",
    "a mean and a deviation": "x = torch.normal(x, x.abs() + 1)",
    "an end of a block": "if self.training:\n            # in\n            print(x)\n            # out",
}


@pytest.mark.parametrize("trap", sorted(TRAPS))
def test_a_plain_program_computes_the_same_after_all_its_fixes(trap, tmp_path, capsys):
    path = tmp_path / "train.py"
    head, tail = PORT.split("ported = to_ipu(model, criterion, optimizer=optimizer)\n")
    text = head.replace("from porting import to_ipu\n", "import numpy as np\n") + tail
    text = text.replace(
        IN_LOOP,
        "    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n",
    )
    text = text.replace("ported.state_dict()", "{**model.state_dict(), 'calls': torch.tensor(model.calls)}")
    text = text.replace("        self.hidden, self.last", "        self.calls = 0\n        self.hidden, self.last")
    method = "    def rate(self, t):\n        return torch.ones(4) * t\n\n"
    method += "    def count(self):\n        self.calls += 1\n        return self.calls\n\n"
    text = text.replace("    def forward", method + "    def forward").replace(
        IN_FORWARD, f"        {TRAPS[trap]}\n{IN_FORWARD}"
    )
    path.write_text(text)
    before = run_program(path)

    main(["check", "train.py", "--fix"])
    after = run_program(path)

    capsys.readouterr()
    assert {name: value.tolist() for name, value in after.items()} == {
        name: value.tolist() for name, value in before.items()
    }


PARTS = """\
def shift(x):
    x += 1.0


class Shift(nn.Module):
    def forward(self, x):
        x += 1.0
        return x


"""

WRITES = {
    "a view of an input": "        part = x.view(-1)\n        part += 1.0\n",
    "a part of an input": "        part = x[:, :2]\n        part.mul_(2.0)\n",
    "a function's input": "        shift(x)\n",
    "an input of a part": "        x = Shift()(x) + x\n",
    "an input by another name": "        kept = x\n        x += 1.0\n        x = x - kept\n",
    "an input alone": "        x += 1.0\n        x.mul_(2.0)\n",
}


@pytest.mark.parametrize("name", sorted(WRITES))
def test_what_a_port_computes_stays_whatever_writes_are_fixed(name, tmp_path, capsys):
    path = tmp_path / "train.py"
    text = PORT.replace(IN_FORWARD, WRITES[name] + IN_FORWARD)
    path.write_text(text.replace("class Net", f"{PARTS}class Net"))
    before = {name: value.clone() for name, value in run_program(path).items()}

    main(["check", "train.py", "--fix"])
    after = run_program(path)

    capsys.readouterr()
    for weight, value in before.items():
        torch.testing.assert_close(after[weight], value)


def test_a_port_of_the_corpus_that_fails_runs_after_its_fixes(tmp_path, capsys):
    path = tmp_path / "train.py"
    text = (CORPUS / "faulty_ports" / "to_ipu_loop.py").read_text()
    # what becomes of the last batch is for the user to say
    path.write_text(text.replace("batch_size=32", "batch_size=64, drop_last=True") + "weights = ported.state_dict()\n")
    with pytest.raises(Exception, match="D003"):
        run_program(path)

    main(["check", "train.py", "--fix"])

    assert run_program(path)
    capsys.readouterr()


def list_comments(text):
    return Counter(
        token.string for token in tokenize.tokenize(io.BytesIO(text).readline) if token.type == tokenize.COMMENT
    )


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.py")), ids=lambda path: path.stem)
def test_the_fixes_of_the_corpus_are_python_and_lose_no_comment(path):
    findings = check_source(read_programs([str(path)]))

    for fix in propose_fixes(findings, ported_files={str(path)}, with_unproven=True):
        compile(fix.after, str(path), "exec")
        assert list_comments(fix.after) == list_comments(fix.before)
        assert fix.after.count(b"\n\n") >= fix.before.count(b"\n\n")


def test_a_step_that_may_be_the_bare_models_is_only_shown(tmp_path, monkeypatch, capsys):
    text = """
import torch
from porting import to_ipu

def make(ports):
    model = torch.nn.Linear(4, 3)
    return to_ipu(model, torch.nn.CrossEntropyLoss()) if ports else model

model = make(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = model.weight.detach().clone()
for _ in range(3):
    loss = model(torch.rand(8, 4))[0].sum()
    loss.backward()
    optimizer.step()
weights = {"moved": (model.weight - before).abs().sum()}
"""
    path = tmp_path / "train.py"
    path.write_text(text)

    main(["check", "train.py", "--fix"])

    assert "on another way to this line the model is not ported" in capsys.readouterr().out
    assert path.read_text() == text
    assert run_program(path)["moved"] > 0
