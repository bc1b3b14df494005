"""A ported program is proved against a plain one: sound pairs pass, and silent errors are found where they begin."""

from __future__ import annotations

import pytest

from porting.verify.certificate import Verdict
from tests.verify.program_styles import STYLES
from tests.verify.silent_errors import ERRORS, make_program


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ERRORS)
def test_a_silent_error_is_found_where_it_begins(name, prove_programs):
    error = ERRORS[name]
    plain = make_program(error.sound, is_ported=False)

    certificate = prove_programs(make_program({**error.sound, **error.faulty}, is_ported=True), plain, steps=5)

    assert certificate.verdict is Verdict.FAIL, str(certificate)
    first = certificate.first
    assert (first.kind, first.step) == (error.kind, error.step), str(certificate)
    assert error.name in first.name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ERRORS)
def test_the_sound_twin_of_a_silent_error_passes(name, prove_programs):
    sound = ERRORS[name].sound
    plain, ported = (make_program(sound, is_ported=is_ported) for is_ported in (False, True))

    certificate = prove_programs(ported, plain, steps=4)

    assert certificate.holds, str(certificate)


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_a_sound_program_passes_in_every_style(style, prove_programs):
    certificate = prove_programs(*STYLES[style], steps=4)

    assert certificate.holds, str(certificate)
    assert certificate.num_steps == 4
