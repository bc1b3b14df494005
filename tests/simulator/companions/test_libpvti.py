"""Trace points of the system profile change nothing."""

from __future__ import annotations


def test_a_span_may_be_a_context_or_two_calls():
    import libpvti as pvti

    channel = pvti.createTraceChannel("loading")
    with pvti.Tracepoint(channel, "epoch") as span:
        pvti.Tracepoint.begin(channel, "batch")
        pvti.Tracepoint.end(channel, "batch")

    assert isinstance(span, pvti.Tracepoint)


def test_an_instrumented_object_stays_what_it_is():
    import libpvti as pvti

    words = ["a"]

    assert pvti.instrument(words, ["append"], pvti.createTraceChannel("words")) is words


def test_the_channels_of_poptorch_use_it(monkeypatch):
    from porting.simulator.profiling import Channel

    monkeypatch.setenv("PVTI_OPTIONS", '{"enable": "true"}')

    with Channel("training").tracepoint("epoch"):
        total = sum(range(4))

    assert total == 6
