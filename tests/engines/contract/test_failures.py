"""Findings about engines that could not do a step say why in one line, and that replay does it."""

from __future__ import annotations

import pytest

from porting.diagnostics import OptionError
from porting.engines.calls.executable import Choice
from porting.engines.contract.failures import (
    CompileFailure,
    NotCompilable,
    failure_finding,
    failure_reason,
    is_lasting,
    parity_finding,
    replay_finding,
)

AOT = Choice("aot")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CompileFailure("error", "the C++ compiler refuses it"), "E001"),
        (CompileFailure("timeout", "it was not done after 3 s"), "E002"),
        (NotCompilable("the step computes nothing"), "E003"),
        (ValueError("no such operator"), "E001"),
        (OptionError.of("P004", message="the engine `aot` cannot be used"), "E015"),
    ],
)
def test_each_kind_of_failure_has_its_code(error, code):
    assert failure_finding(AOT, error).code == code


def test_the_compilers_last_words_are_quoted():
    finding = failure_finding(AOT, CompileFailure("error", "it is refused", log="1\n2\n3\n4"))

    assert finding.notes[1:] == ("the compiler said: 2", "the compiler said: 3", "the compiler said: 4")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CompileFailure("crash", "the compiler crashed"), "the compiler crashed"),
        (ValueError("first line\nsecond line"), "ValueError: first line"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_reason_is_one_line(error, reason):
    assert failure_reason(error) == reason


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "full"), CompileFailure("space", "the disk is full")])
def test_what_was_lacking_may_be_there_next_time(error):
    assert not is_lasting(error)


def test_a_refusal_is_one_for_ever():
    assert is_lasting(CompileFailure("error", "it is refused"))


def test_a_failure_keeps_the_end_of_a_long_log():
    failure = CompileFailure("error", "it is refused", log="x" * 100_000 + "the end")

    assert failure.log.endswith("the end")
    assert len(failure.log) < 10_000


def test_a_step_that_needs_replay_is_told_with_the_reason():
    assert replay_finding("it prints").message == "the step is not compiled but replayed: it prints"


def test_a_candidate_that_differs_is_told_by_its_name():
    finding = parity_finding(Choice("aot", channels_last=True), "weight `a` differs")

    assert (finding.code, "`aot, channels-last`" in finding.message) == ("E007", True)
