"""What ran where."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.api import RunReport
from porting.diagnostics import PortingWarning


@pytest.fixture
def ported(make_model):
    model = make_model()
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters(), lr=0.002))


def test_calls_samples_and_compilations_are_counted(ported, batches):
    for batch in batches[:3]:
        ported(*batch)
    ported.inference()(batches[0][0])

    training, inference = ported.report().executors
    assert (training.name, training.num_compilations, training.num_calls, training.num_samples) == (
        "training",
        1,
        3,
        18,
    )
    assert (inference.name, inference.num_compilations, inference.num_calls) == ("inference", 1, 1)
    assert ported.report().num_training_calls == 3


def test_compiling_takes_no_part_in_the_time_of_calls(ported, batches):
    ported(*batches[0])

    (record,) = ported.report().executors
    assert record.compile_seconds > 0.0
    assert record.call_seconds > 0.0
    assert record.compiled_at is not None


def test_the_time_of_calls_is_divided(ported, batches):
    samples = torch.utils.data.TensorDataset(*map(torch.cat, zip(*batches[:3])))
    for batch in ported.dataloader(samples, batch_size=6):
        ported(*batch)

    report = ported.report()
    (record,) = report.executors
    parts = (record.host_to_device_seconds, record.run_seconds, record.device_to_host_seconds, record.python_seconds)
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(record.call_seconds)
    assert report.loader_seconds > 0
    assert "device to host" in str(report)
    assert report.to_dict()["executors"][0]["python_seconds"] == record.python_seconds
    assert report.to_dict()["loader_seconds"] == report.loader_seconds


def test_without_a_call_and_a_loader_there_is_no_time_to_divide(ported, batches):
    ported.compile(*batches[0])

    report = ported.report()
    assert report.loader_seconds is None
    assert report.executors[0].run_seconds is None
    assert "device to host" not in str(report)


def test_a_recompilation_is_counted(ported, batches):
    ported(*batches[0])
    ported.destroy()
    ported(*batches[1])

    assert ported.report().executors[0].num_compilations == 2
    assert ported.report().executors[0].num_calls == 2


def test_the_report_is_fit_for_json(ported, batches, monkeypatch, tmp_path):
    # whatever other tests have left in the folder for all of them
    monkeypatch.setenv("PORTING_CACHE_DIR", str(tmp_path / "empty"))
    ported(*batches[0])

    report = json.loads(json.dumps(ported.report().to_dict()))

    assert report["device"] == "CPU simulator of an IPU"
    assert report["is_simulator"] is True
    assert report["optimizer"] == "Adam, lr 0.002"
    assert report["samples_per_step"] == 6
    assert report["executors"][0]["cache"] == "off"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", report["executors"][0]["compiled_at"])


def test_the_report_before_anything_ran_is_honest_about_it(make_model):
    report = to_ipu(make_model(), nn.CrossEntropyLoss()).report()

    assert report.num_training_calls == 0
    assert report.micro_batch is None
    assert "not compiled" in str(report)
    assert "optimizer   not made yet" in str(report)
    assert "step        ? samples; 1 step a call; float32" in str(report)


def test_the_table_has_a_row_for_each_executor(ported, batches):
    ported(*batches[0])
    ported.inference()(batches[0][0])

    lines = str(ported.report()).splitlines()

    assert lines[0] == "device      CPU simulator of an IPU  (no IPU took part)"
    assert lines[1].startswith("backend     porting.simulator")
    assert lines[3] == "step        6 samples; 1 step a call; float32"
    assert [line.split()[0] for line in lines[5:8]] == ["executor", "training", "inference"]
    assert lines[8].split("  ")[0] == "seconds of"
    assert [line.split()[0] for line in lines[9:11]] == ["training", "inference"]
    assert all(float(cell) >= 0 for line in lines[9:11] for cell in line.split()[2:])


def test_the_step_is_told_with_all_its_factors(make_model):
    options = PortOptions(accumulation=2, replicas=2, device_iterations=3, broadcast_buffers=False)
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=options)

    ported.compile(torch.randn(48, 4), torch.zeros(48, dtype=torch.int64))

    assert ported.report().micro_batch == 4
    assert ported.report().samples_per_step == 16
    assert "step        16 samples = 4 in a micro-batch x 2 accumulated x 2 replicas; 3 steps a call; float32" in str(
        ported.report()
    )


def test_a_cache_that_the_simulator_cannot_use_is_a_miss(make_model, batches, tmp_path):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(cache_dir=tmp_path))

    ported(*batches[0])

    assert ported.report().executors[0].cache == "miss"


def test_what_was_found_while_porting_is_in_the_report(make_model):
    with pytest.warns(UserWarning, match="P003"):
        ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(precision="float16"))

    assert [finding.code for finding in ported.report().findings] == ["P003"]
    assert str(ported.report()).splitlines()[-1] == "note[P003]: the weights were converted to float16"


def test_a_report_does_not_change_when_training_goes_on(ported, batches):
    ported(*batches[0])
    report = ported.report()

    ported(*batches[1])

    assert isinstance(report, RunReport)
    assert report.num_training_calls == 1


def test_the_report_says_which_engine_runs_and_where_it_came_from(make_model, batches, tmp_path, interpreted_engine):
    options = PortOptions(engine="interpreted", cache_dir=tmp_path)
    records = []
    for _process in range(2):
        ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=options)
        ported(*batches[0])
        records.append(ported.report().executors[0])

    assert [(record.engine, record.cache) for record in records] == [("interpreted", "miss"), ("interpreted", "hit")]
    assert records[0].compiler_seconds > 0.0
    assert records[1].compiler_seconds == 0.0
    assert 0.0 < records[1].load_seconds < records[1].compile_seconds
    assert "interpreted  hit" in str(ported.report())


def test_the_report_has_the_measurements_that_the_engine_was_chosen_by(
    make_model, batches, tmp_path, interpreted_engine
):
    options = PortOptions(engine="auto", cache_dir=tmp_path, tuning_seconds=200.0)
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=options)
    ported.compile(*batches[0])

    record = json.loads(json.dumps(ported.report().to_dict()))["executors"][0]

    assert {candidate["label"] for candidate in record["tuning"]["candidates"]} >= {"replay", "interpreted"}
    assert record["engine"] == record["tuning"]["chosen"]["engine"] or record["engine"].startswith("replay")


def test_what_happened_while_the_engine_was_sought_is_reported(make_model, batches, tmp_path, interpreted_engine):
    options = PortOptions(engine="interpreted")
    interpreted_engine.compile = None
    interpreted_engine.load = None
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=options)

    with pytest.warns(PortingWarning, match="E001"):
        ported(*batches[0])

    assert [finding.code for finding in ported.report().findings][-1] == "E001"
    assert ported.report().executors[0].engine == "replay"
