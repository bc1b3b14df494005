"""Guesses: by what is done with a name, then by the name."""

from __future__ import annotations

import ast

import pytest

from porting.source.facts import Kind
from porting.source.walk.guesses import find_uses, guess_kind, guess_kind_by_name, is_loss_name


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("a.zero_grad(); a.step()", Kind.OPTIMIZER),
        ("a.backward()", Kind.LOSS),
        ("a.parameters()", Kind.MODULE),
        ("a.train(); a(1)", Kind.MODULE),
        ("a.step(); a.get_last_lr()", Kind.SCHEDULER),
        ("a.scale(x); a.step(o); a.update()", Kind.SCALER),
        ("a.add_scalar('x', 1)", Kind.WRITER),
        ("a.step()", None),
        ("a.train()", None),
        ("a.append(1)", None),
    ],
)
def test_what_is_done_with_a_name_tells_its_kind(program, kind):
    assert guess_kind(find_uses(ast.parse(program), [program]), "a") is kind


def test_an_attribute_of_self_has_uses_of_its_own():
    program = "self.a.zero_grad(); self.a.step(); a.backward()"

    uses = find_uses(ast.parse(program), [program])

    assert guess_kind(uses, "self.a") is Kind.OPTIMIZER
    assert guess_kind(uses, "a") is Kind.LOSS


def test_only_the_lines_of_a_scope_are_looked_at():
    lines = ["def inner():", "    a.backward()", "a.append(1)"]
    tree = ast.parse("\n".join(lines))

    kinds = [guess_kind(find_uses(scope, lines), "a") for scope in (tree, *tree.body)]

    assert kinds == [Kind.LOSS, Kind.LOSS, None]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model", "module"),
        ("net", "module"),
        ("netG", "module"),
        ("model_without_ddp", "module"),
        ("train_loader", "loader"),
        ("val_dataloader", "loader"),
        ("testloader", "loader"),
        ("data_loader_train", "loader"),
        ("dataset", "dataset"),
        ("val_dataset", "dataset"),
        ("criterion", "criterion"),
        ("loss_fn", "criterion"),
        ("optimizer", "optimizer"),
        ("optimizer_G", "optimizer"),
        ("lr_scheduler", "scheduler"),
        ("scaler", "scaler"),
        ("writer", "writer"),
        ("device", "device"),
    ],
)
def test_usual_names(name, kind):
    assert guess_kind_by_name(name).value == kind


@pytest.mark.parametrize("name", ["opt", "x", "epoch", "args", "modeling", "loaded", "lossless", "network_name"])
def test_other_names(name):
    assert guess_kind_by_name(name) is None


@pytest.mark.parametrize(
    "name", ["loss", "train_loss", "dice_loss", "loss_G", "compute_loss", "losses", "FocalLoss", "errD"]
)
def test_names_of_losses(name):
    assert is_loss_name(name)


@pytest.mark.parametrize("name", ["lossless", "closs", "gloss", "logits", "x"])
def test_names_of_others(name):
    assert not is_loss_name(name)
