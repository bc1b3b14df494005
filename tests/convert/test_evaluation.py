"""A call of the model that trains nothing is the inference of its port, by its mode or by name."""

from __future__ import annotations

from tests.convert.training_programs import HEAD, convert_idiomatic, read_reason, train_all_ways, write_loop

TRAIN = write_loop("loss = criterion(model(x), y)", "optimizer.zero_grad()", "loss.backward()", "optimizer.step()")
CALL = "print(model(torch.randn(8, 4)))\n"


def test_a_call_behind_eval_stays_as_it_is(tmp_path, monkeypatch):
    assert train_all_ways(tmp_path, f"{TRAIN}model.eval()\n{CALL}", monkeypatch).endswith(CALL)


def test_a_call_without_eval_names_the_inference(tmp_path, monkeypatch):
    text = train_all_ways(tmp_path, f"{TRAIN}with torch.no_grad():\n    {CALL}", monkeypatch)
    assert "print((model.inference() if isinstance(model, PortedModel) else model)(torch.randn(8, 4)))" in text


def test_the_call_of_another_model_stays_as_it_is(tmp_path):
    text = convert_idiomatic(tmp_path, f"{TRAIN}other = nn.Linear(4, 3)\nprint(other(torch.randn(8, 4)))\n")
    assert text.endswith("print(other(torch.randn(8, 4)))\n")


def test_a_layer_that_tells_modes_apart_needs_eval(tmp_path):
    model = "nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))"
    text = TRAIN.replace(HEAD, HEAD.replace("nn.Linear(4, 3)", model))
    assert read_reason(tmp_path, text + CALL) == "the model is called without `eval()`"
