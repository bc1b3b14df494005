"""What leads from the output to the loss moves into the port; all else of the step stays where it is."""

from __future__ import annotations

from tests.convert.training_programs import convert_idiomatic, read_reason, train_all_ways, write_loop

STEP = ("optimizer.zero_grad()", "loss.backward()", "optimizer.step()")


def test_what_only_stands_beside_the_loss_stays_in_the_loop(tmp_path):
    lines = ("output = model(x)", "seen = len(x)", "loss = criterion(output, y)")
    text = convert_idiomatic(tmp_path, write_loop(*lines, *STEP))
    assert "\n    seen = len(x)\n" in text


def test_a_sum_begins_in_the_port_as_it_does_in_the_loop(tmp_path, monkeypatch):
    lines = ("loss = 0", "output = model(x)", "for scale in (1, 2):", "    loss = loss + criterion(output * scale, y)")
    text = train_all_ways(tmp_path, write_loop(*lines, *STEP), monkeypatch)
    assert "    def compute_loss(output, y):\n        loss = 0\n        for scale in (1, 2):\n" in text


def test_the_device_is_called_behind_what_makes_the_labels(tmp_path, monkeypatch):
    lines = ("output = model(x)", "target = y.roll(1)", "loss = criterion(output, target)")
    text = train_all_ways(tmp_path, write_loop(*lines, *STEP), monkeypatch)
    assert text.index("target = y.roll(1)") < text.index("output, loss = model(x, target)")


def test_labels_that_are_made_of_the_output_are_left(tmp_path):
    lines = ("output = model(x)", "print(output.shape)", "target = y.roll(1)", "loss = criterion(output, target)")
    reason = "labels are made behind what reads the output"
    assert read_reason(tmp_path, write_loop(*lines, *STEP)) == reason


def test_an_output_without_a_name_gets_one_that_the_loop_does_not_use(tmp_path):
    text = convert_idiomatic(tmp_path, write_loop("output = 3", "loss = criterion(model(x), y)", *STEP))
    assert "        model_output, loss = model(x, y)\n" in text
