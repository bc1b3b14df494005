"""A port that was written by hand becomes the plain loop, whose checkpoints and weights go on where it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import to_ipu
from porting.convert.ejection import plan_ejection

PROGRAM = """\
import torch
from torch import nn

from porting import PortOptions, to_ipu


def train(batches):
    model = nn.Linear(4, 2)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, criterion, optimizer=optimizer)
    for x, y in batches:
        output, loss = ported(x, y)
        print(loss.item())
    ported.save("training.pt")


train([(torch.randn(8, 4), torch.randint(0, 2, (8,)))])
"""
_STEP = """\
    for x, y in batches:
        optimizer.zero_grad()
        output = ported(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        print(loss.item())
    torch.save({"model": ported.state_dict(), "optimizer": optimizer.state_dict()}, "training.pt")
"""
_MAKING = "to_ipu(model, criterion, optimizer=optimizer)"


def eject(folder, text):
    (folder / "train.py").write_text(text)
    made = plan_ejection(str(folder), "train.py", (), ("--device", "sim"))
    return made.changed.get("train.py", b"").decode(), made


def test_a_call_of_the_port_becomes_the_step_of_a_loop(tmp_path):
    text, made = eject(tmp_path, PROGRAM)

    assert _STEP in text
    assert "    ported = model\n" in text
    assert "porting" not in text
    assert not made.left


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (_MAKING, f"{_MAKING[:-1]}, max_grad_norm=1.0)", "torch.nn.utils.clip_grad_norm_(ported.parameters(), 1.0)\n"),
        (_MAKING, f"{_MAKING[:-1]}, options=PortOptions(accumulation=2, micro_batch=4))", "    ported = model\n"),
        (
            "criterion, opt",
            "lambda output, label: output.sum(), opt",
            "loss = (lambda output, label: output.sum())(output, y)",
        ),
        ('ported.save("training.pt")', 'ported.load("training.pt")', 'ported.load_state_dict(kept["model"])\n'),
        (
            'ported.save("training.pt")',
            "infer = ported.inference()",
            "with torch.no_grad():\n            outputs = ported(*inputs)",
        ),
        (
            "batches:",
            "ported.dataloader(torch.utils.data.DataLoader(batches)):",
            "in torch.utils.data.DataLoader(batches):",
        ),
    ],
)
def test_what_a_port_does_has_words_of_plain_pytorch(tmp_path, old, new, line):
    text, made = eject(tmp_path, PROGRAM.replace(old, new))
    assert line in text
    assert not made.left


def test_options_that_have_a_name_go_with_the_port(tmp_path):
    making = f"{_MAKING[:-1]}, options=options)"
    text, made = eject(
        tmp_path,
        PROGRAM.replace(_MAKING, making).replace(
            "    ported =", "    options = PortOptions(micro_batch=8)\n    ported ="
        ),
    )
    assert "ptions" not in text
    assert not made.left


def test_a_model_that_keeps_its_name_loses_its_port(tmp_path):
    text, _made = eject(tmp_path, PROGRAM.replace("ported", "model"))
    assert "lr=0.1)\n    for x, y in batches:\n        optimizer.zero_grad()\n        output = model(x)" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (_MAKING, f"{_MAKING[:-1]}, options=PortOptions(device_iterations=2))", "the option `device_iterations`"),
        (_MAKING, f"{_MAKING[:-1]}, metrics={{}})", "`metrics` of `to_ipu`"),
        (_MAKING, "to_ipu(model, criterion)", "the port has no optimizer"),
        ("output, loss = ported(x, y)", "loss = ported(x, y)[1]", "what the port's call returns"),
        ('ported.save("training.pt")', "print(ported.report())", "`report` of a port"),
    ],
)
def test_what_cannot_be_rewritten_is_left_by_line(tmp_path, old, new, reason):
    _text, made = eject(tmp_path, PROGRAM.replace(old, new))
    assert any(reason in one.reason for one in made.left)


def test_a_checkpoint_of_a_port_goes_on_in_plain_pytorch(tmp_path):
    models = [nn.Linear(4, 2) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in models]
    ported = to_ipu(models[0], nn.CrossEntropyLoss(), optimizer=optimizers[0], device="sim")
    x, y = torch.randn(8, 4), torch.arange(8) % 2
    ported(x, y)
    ported.save(tmp_path / "training.pt")

    kept = torch.load(tmp_path / "training.pt", weights_only=True)
    models[1].load_state_dict(kept["model"])
    optimizers[1].load_state_dict(kept["optimizer"])
    nn.functional.cross_entropy(models[1](x), y).backward()
    optimizers[1].step()
    ported(x, y)

    torch.testing.assert_close(models[1].state_dict(), dict(ported.state_dict()))
