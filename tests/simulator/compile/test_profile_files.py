"""The file that profiling asks for."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def _no_engine_options(monkeypatch):
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)


def test_a_profile_is_named_after_what_the_model_is_for(poptorch, tmp_path, regression, batch):
    options = poptorch.Options().enableProfiling(str(tmp_path))

    poptorch.trainingModel(regression, options).compile(*batch)
    poptorch.inferenceModel(nn.ReLU(), options).compile(torch.ones(1))

    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")) == [
        "inference/profile.pop",
        "training/profile.pop",
    ]


def test_a_profile_is_named_after_the_model(poptorch, tmp_path):
    options = poptorch.Options().enableProfiling(str(tmp_path)).modelName("net")

    poptorch.inferenceModel(nn.ReLU(), options).compile(torch.ones(1))

    assert (tmp_path / "net" / "profile.pop").is_file()


def test_a_profile_says_that_it_is_the_simulators(poptorch, tmp_path):
    poptorch.inferenceModel(nn.ReLU(), poptorch.Options().enableProfiling(str(tmp_path))).compile(torch.ones(1))

    assert b"porting.simulator" in (tmp_path / "inference" / "profile.pop").read_bytes()


def test_nothing_is_written_without_profiling(poptorch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    poptorch.inferenceModel(nn.ReLU()).compile(torch.ones(1))

    assert list(tmp_path.iterdir()) == []


def test_the_environment_has_the_last_word(poptorch, tmp_path, monkeypatch, caplog):
    engine = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "b")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(engine))

    options = poptorch.Options().enableProfiling(str(tmp_path / "a"))
    poptorch.inferenceModel(nn.ReLU(), options).compile(torch.ones(1))

    assert (tmp_path / "b" / "inference" / "profile.pop").is_file()
    assert not (tmp_path / "a").exists()
    assert "overridden by environment variable" in caplog.text


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[1]", "must be a JSON object")])
def test_other_engine_options_than_json_are_refused(poptorch, monkeypatch, text, message):
    executor = poptorch.inferenceModel(nn.ReLU())
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)

    with pytest.raises(poptorch.Error, match=f"POPLAR_ENGINE_OPTIONS {message}"):
        executor.compile(torch.ones(1))
