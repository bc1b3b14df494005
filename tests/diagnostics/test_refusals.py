"""A refusal is raised, unless somebody collects refusals; then the caller goes on."""

from __future__ import annotations

import threading

import pytest

from porting.diagnostics import PortingError, amended_refusals, are_refusals_collected, collected_refusals, refuse


def test_a_refusal_is_raised_where_nobody_collects():
    with pytest.raises(PortingError, match="L002"):
        refuse(PortingError.of("L002"))


def test_refusals_are_kept_in_their_order():
    with collected_refusals() as found:
        refuse(PortingError.of("L002"))
        refuse(PortingError.of("C001"))

    assert [error.code for error in found] == ["L002", "C001"]


def test_after_the_context_refusals_are_raised_again():
    with collected_refusals():
        pass

    assert not are_refusals_collected()


def test_a_collector_may_raise():
    def stop(error):
        raise error

    with pytest.raises(PortingError, match="L002"), collected_refusals(stop):
        refuse(PortingError.of("L002"))


def test_an_amended_refusal_is_kept_as_it_was_made():
    with collected_refusals() as found, amended_refusals(lambda error: PortingError.of("C002")):
        refuse(PortingError.of("L002"))

    assert [error.code for error in found] == ["C002"]


def test_nothing_is_amended_where_nobody_collects():
    with pytest.raises(PortingError, match="L002"), amended_refusals(lambda error: PortingError.of("C002")):
        refuse(PortingError.of("L002"))


def test_another_thread_does_not_collect():
    seen = []

    with collected_refusals():
        thread = threading.Thread(target=lambda: seen.append(are_refusals_collected()))
        thread.start()
        thread.join()

    assert seen == [False]
