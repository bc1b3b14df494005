"""What is compiled from a file is what training finds."""

from __future__ import annotations

import pytest
import torch

from porting import PortOptions, to_ipu
from porting.diagnostics import ExecutableError, OptionError
from porting.exports import load_step
from porting.exports.compiling import compile_step, require_batch, require_settings

OPTIONS = PortOptions(micro_batch=4, accumulation=2)


def port(parts, folder, **changes):
    """Port a model like the exported one and return where its executable came from."""
    model, loss, batch, optimizer = parts
    options = OPTIONS.replace(cache_dir=folder, **changes)
    ported = to_ipu(model, loss, optimizer=optimizer, device="sim", options=options)
    ported.compile(*batch)
    return ported.device_executor.device_session.compiled.obtained


def test_training_starts_with_a_hit(parts, step_file, tmp_path, interpreted_engine):
    compiled = compile_step(load_step(step_file), engine="interpreted", cache_dir=tmp_path / "cache")

    obtained = port(parts, tmp_path / "cache", engine="interpreted")

    assert (compiled.origin, obtained.origin) == ("compiled", "hit")
    assert interpreted_engine.calls.count("compile") == 1


def test_the_default_engine_finds_it_too(parts, step_file, tmp_path, interpreted_engine):
    compile_step(load_step(step_file), engine="interpreted", cache_dir=tmp_path / "cache")

    assert port(parts, tmp_path / "cache").origin == "hit"


def test_a_step_without_weights_compiles_under_the_same_key(parts, step_file, tmp_path, interpreted_engine):
    load_step(step_file).save(tmp_path / "light.step", weights=False)

    compile_step(load_step(tmp_path / "light.step"), engine="interpreted", cache_dir=tmp_path / "cache")

    assert port(parts, tmp_path / "cache").origin == "hit"


def test_another_computation_order_is_another_executable(parts, step_file, tmp_path, interpreted_engine):
    step = load_step(step_file)
    compile_step(step, engine="interpreted", cache_dir=tmp_path / "cache", computation_order="dummy2")

    plain, ordered = port(parts, tmp_path / "cache"), port(parts, tmp_path / "cache", computation_order="dummy2")

    assert (plain.origin, ordered.origin) == ("replay", "hit")


def test_an_engine_that_cannot_is_replayed_and_reported(step_file, tmp_path, interpreted_engine, monkeypatch):
    def fail(*_arguments, **_keywords):
        raise RuntimeError("out of registers")

    monkeypatch.setattr(interpreted_engine, "compile", fail)
    findings = []

    obtained = compile_step(
        load_step(step_file), engine="interpreted", cache_dir=tmp_path / "cache", report=findings.append
    )

    assert obtained.origin == "replay"
    assert "out of registers" in findings[0].message + "".join(findings[0].notes)


def test_an_unknown_engine_is_refused(step_file, tmp_path):
    with pytest.raises(OptionError, match="P004"):
        compile_step(load_step(step_file), engine="warp-drive", cache_dir=tmp_path / "cache")


def test_the_recorded_batch_is_accepted(step_file):
    require_batch(load_step(step_file), micro=4, accumulation=2, replicas=None)
    require_settings(load_step(step_file), mode="training", precision=None)


@pytest.mark.parametrize(("name", "option"), [("micro", "--batch 16"), ("replicas", "--replicas 16")])
def test_another_batch_is_refused_with_the_way_to_export_it(step_file, name, option):
    with pytest.raises(ExecutableError) as raised:
        require_batch(load_step(step_file), path="model.step", **{name: 16})

    assert raised.value.code == "E025"
    assert "batch 4 x 2 accumulation = 8 samples a call" in raised.value.finding.message
    assert f"{option} -o model.step" in raised.value.finding.help[0]


def test_another_precision_is_refused(step_file):
    with pytest.raises(ExecutableError, match="exported for precision float32, and not for mixed"):
        require_settings(load_step(step_file), precision="mixed")


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_real_compiler_makes_what_training_finds(parts, step_file, tmp_path):
    compiled = compile_step(load_step(step_file), engine="aot", cache_dir=tmp_path / "cache")

    obtained = port(parts, tmp_path / "cache")

    assert (compiled.origin, obtained.origin, obtained.choice.engine) == ("compiled", "hit", "aot")


def test_numbers_of_the_optimizer_may_be_others_in_training(parts, step_file, tmp_path, interpreted_engine):
    compile_step(load_step(step_file), engine="interpreted", cache_dir=tmp_path / "cache")
    model, loss, batch, _optimizer = parts
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)

    assert port((model, loss, batch, optimizer), tmp_path / "cache").origin == "hit"
