"""A training step that would not fit into an IPU is told when the simulator compiles it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortingError, PortOptions, memory_report, to_ipu
from porting.diagnostics import PortingWarning


def make_ported(width=64, *, rows=4, wide=1, **options):
    torch.manual_seed(0)
    layers = [nn.Linear(width, width), nn.ReLU()] * wide
    model = nn.Sequential(*layers)
    ported = to_ipu(model, nn.MSELoss(), device="sim", options=PortOptions(**options))
    return ported, (torch.zeros(rows, width), torch.zeros(rows, width))


LARGE = {"width": 1024, "rows": 16384, "wide": 8}


def test_a_step_that_does_not_fit_is_told_once_with_the_first_remedy():
    ported, batch = make_ported(**LARGE)

    with pytest.warns(PortingWarning) as caught:
        ported.compile(*batch)

    (finding,) = [warning.message.finding for warning in caught]
    assert finding.code == "M001"
    assert "micro_batch=1" in finding.help[0]
    assert finding.place.file == __file__
    assert "warning[M001]: IPU 0 would need" in str(ported.report())


def test_it_needs_what_the_memory_report_says():
    ported, batch = make_ported(**LARGE)

    with pytest.warns(PortingWarning) as caught:
        ported.compile(*batch)

    assert caught[0].message.finding.message == memory_report(ported, batch).finding.message


def make_staged(rows, **options):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    options = PortOptions(stages={"2": 1}, accumulation=3, **options)
    return to_ipu(model, nn.MSELoss(), device="sim", options=options), (torch.zeros(rows, 1024),) * 2


@pytest.mark.parametrize("make", [lambda rows: make_ported(1024, rows=rows), make_staged])
def test_inference_that_does_not_fit_is_told_too(make):
    ported, (rows, _targets) = make(160_000)

    with pytest.warns(PortingWarning) as caught:
        ported.inference().compile(rows)

    (finding,) = [warning.message.finding for warning in caught]
    assert finding.message == memory_report(ported, (rows,), mode="inference").finding.message
    assert 'mode="inference"' in finding.help[1]


def test_a_step_with_stages_that_does_not_fit_is_told():
    ported, batch = make_staged(3 * 49152, micro_batch=49152)

    with pytest.warns(PortingWarning) as caught:
        ported.compile(*batch)

    assert caught[0].message.finding.message == memory_report(ported, batch).finding.message


def test_the_error_is_that_of_the_device_with_its_words(poptorch):
    ported, batch = make_ported(**LARGE, memory="error")

    with pytest.raises(poptorch.Error, match="Out of memory: Cannot fit all variable data onto one or more") as caught:
        ported.compile(*batch)

    assert caught.value.type == "popart_exception"
    assert caught.value.finding.message == memory_report(ported, batch).finding.message
    assert not ported.device_executor


def test_after_the_error_a_smaller_batch_trains():
    ported, batch = make_ported(**LARGE, memory="error")
    with pytest.raises(PortingError, match="M001"):
        ported.compile(*batch)

    ported(*(tensor[:4] for tensor in batch))

    assert ported.report().num_training_calls == 1


def test_it_can_be_an_error_before_anything_is_trained():
    ported, batch = make_ported(**LARGE, memory="error")
    before = {name: value.clone() for name, value in ported.state_dict().items()}

    with pytest.raises(PortingError, match="M001"):
        ported(*batch)

    assert ported.report().num_training_calls == 0
    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())


@pytest.mark.parametrize(
    ("size", "options"), [({}, {}), (LARGE, {"memory": "ignore"}), ({"width": 512, "rows": 256}, {})]
)
def test_a_step_that_fits_or_is_not_asked_about_is_not_told(size, options):
    ported, batch = make_ported(**size, **options)

    ported.compile(*batch)

    assert [finding.code for finding in ported.report().findings if finding.code == "M001"] == []
