"""What a device's call does itself is made by the loop for every other device, and by no port a second time."""

from __future__ import annotations

import pytest

from tests.convert.training_programs import convert_idiomatic, read_reason, train_all_ways, write_loop

FORWARD = ("output = model(x)", "loss = criterion(output, y)")
CLEAR, BACKWARD, STEP = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"


def test_gradients_that_the_model_clears_are_cleared_by_the_port(tmp_path, monkeypatch):
    train_all_ways(tmp_path, write_loop("model.zero_grad()", *FORWARD, BACKWARD, STEP), monkeypatch)


def test_a_step_that_either_branch_makes_is_made_in_each_turn(tmp_path, monkeypatch):
    lines = ("if step % 2:", f"    {STEP}", "else:", f"    {STEP}")
    train_all_ways(tmp_path, write_loop(CLEAR, *FORWARD, BACKWARD, *lines), monkeypatch)


def test_a_scaler_works_for_every_other_device_alone(tmp_path):
    lines = ("scaler = torch.cuda.amp.GradScaler(enabled=False)", CLEAR, *FORWARD, "scaler.scale(loss).backward()")
    text = convert_idiomatic(tmp_path, write_loop(*lines, "scaler.step(optimizer)", "scaler.update()"))
    assert [line for line in text.splitlines() if line.lstrip().startswith("scaler.")] == [
        "        scaler.scale(loss).backward()",
        "        scaler.step(optimizer)",
        "        scaler.update()",
    ]


def test_a_counted_loop_of_backward_passes_is_one_turn_for_a_port(tmp_path):
    inner = ("for part in range(parts):", *(f"    {line}" for line in (*FORWARD, BACKWARD)))
    text = convert_idiomatic(tmp_path, "parts = 1\n" + write_loop(CLEAR, *inner, STEP))
    assert "    if isinstance(model, PortedModel) and parts != 1:\n        raise ValueError(" in text


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        (
            "gradients of several backward passes make one step",
            (CLEAR, "for part in [x, x]:", *(f"    {line}" for line in (*FORWARD, BACKWARD)), STEP),
        ),
        (
            "the optimizer's step does not stand in the function of the backward pass",
            (CLEAR, *FORWARD, BACKWARD),
        ),
        (
            "`nn.utils.clip_grad_norm_(model.parameters(), 1.0)` stands where it has no effect on the step",
            (CLEAR, *FORWARD, BACKWARD, STEP, "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        ),
    ],
)
def test_another_step_than_the_device_makes_is_left_with_the_reason(tmp_path, reason, lines):
    assert read_reason(tmp_path, write_loop(*lines)) == reason
