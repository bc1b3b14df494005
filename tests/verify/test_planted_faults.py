"""Each planted fault is found, where it begins."""

from __future__ import annotations

import pytest

from porting.verify import Verdict
from tests.verify.planted_faults import FAULTS, prove


# what a port says of its own settings is no part of the proof
@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    fault = FAULTS[name]

    certificate = prove(fault)

    assert certificate.verdict is Verdict.FAIL
    assert certificate.first.kind == fault.kind
    if fault.step is not None:
        assert certificate.first.step == fault.step
    assert certificate.location is not None, certificate.notes
    assert certificate.location.cause
