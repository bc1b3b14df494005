"""Both log channels: levels, formats, destinations and the suppression of repeated lines."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from porting.simulator import _logging
from porting.simulator._logging import cpp_log, cpp_log_enabled, logger, set_max_repeat_logs, setLogLevel

LEVEL_NUMBERS = [("TRACE", 0), ("DEBUG", 1), ("INFO", 2), ("WARN", 3), ("ERR", 4), ("OFF", 6)]


@pytest.fixture(autouse=True)
def fresh_channels(monkeypatch):
    monkeypatch.setattr(_logging, "_channel", _logging._NativeChannel())
    monkeypatch.delenv("POPTORCH_LOG_DEST", raising=False)
    level = logger.level
    yield
    logger.setLevel(level)


def lines_of(text: str) -> list:
    return [line.split("] ", 1)[1] for line in text.splitlines()]


def test_python_line_has_time_channel_level_and_message(capsys):
    logger.warning("the %s is %d", "answer", 42)

    assert re.fullmatch(
        r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch::python\] \[warning\] the answer is 42\n", capsys.readouterr().err
    )


def test_level_of_a_python_line_is_coloured_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    logger.warning("x")

    assert "[\x1b[33mwarning\x1b[0m] x" in capsys.readouterr().err


def test_python_line_with_an_exception_ends_with_its_traceback(capsys):
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        logger.exception("failed")

    assert capsys.readouterr().err.endswith("RuntimeError: boom\n")


def test_python_lines_reach_the_root_logger(caplog):
    logger.warning("seen")

    assert caplog.messages == ["seen"]


@pytest.mark.parametrize(("name", "number"), LEVEL_NUMBERS)
def test_level_by_name_equals_level_by_number(name, number):
    setLogLevel(name)
    by_name = (logger.level, _logging._channel.level)

    setLogLevel(number)

    assert (logger.level, _logging._channel.level) == by_name


@pytest.mark.parametrize(
    ("name", "python_level"),
    [
        ("TRACE_ALL", logging.DEBUG),
        ("DEBUG_IR", logging.DEBUG),
        ("INFO", logging.INFO),
        ("WARN", logging.WARNING),
        ("ERR", logging.ERROR),
        ("OFF", logging.CRITICAL),
    ],
)
def test_level_reaches_the_python_logger(name, python_level):
    setLogLevel(name)

    assert logger.level == python_level


@pytest.mark.parametrize("number", [5, 7, -1])
def test_unknown_level_number_is_an_error(number):
    with pytest.raises(ValueError, match="Invalid log level integer"):
        setLogLevel(number)


def test_unknown_level_name_is_an_error_with_the_valid_ones():
    with pytest.raises(
        ValueError, match=r"Unknown log level: wibble\. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN"
    ):
        setLogLevel("wibble")


def test_failed_level_change_leaves_the_level_alone():
    setLogLevel("INFO")

    with pytest.raises(ValueError, match="Invalid"):
        setLogLevel(5)

    assert (logger.level, _logging._channel.level) == (logging.INFO, 2)


@pytest.mark.parametrize("level", [0, "wibble", None])
def test_popart_level_must_be_a_known_name(level):
    with pytest.raises(ValueError, match="Level must be one of TRACE, TRACE_ALL, DEBUG"):
        _logging.setPopartLogLevel(level)


def test_popart_level_does_not_change_the_others():
    _logging.setPopartLogLevel("TRACE")

    assert not cpp_log_enabled("info")


@pytest.mark.parametrize(("value", "level"), [("ERR", logging.ERROR), ("", logging.WARNING)])
def test_level_comes_from_the_environment(monkeypatch, value, level):
    monkeypatch.setenv("POPTORCH_LOG_LEVEL", value)

    _logging._start_python_channel()

    assert logger.level == level


def test_starting_the_channel_again_does_not_double_its_lines(capsys):
    _logging._start_python_channel()

    logger.warning("once")

    assert capsys.readouterr().err.count("once") == 1


def test_native_line_has_time_channel_level_and_message(capsys):
    setLogLevel("DEBUG")

    cpp_log("debug", "Writing weights from host to IPU memory.")

    assert re.fullmatch(
        r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch:cpp\] \[debug\] Writing weights from host to IPU memory\.\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("threshold", "written"),
    [
        ("TRACE", ["trace", "debug", "info", "warning", "error"]),
        ("DEBUG", ["debug", "info", "warning", "error"]),
        ("WARN", ["warning", "error"]),
        ("ERR", ["error"]),
        ("OFF", []),
    ],
)
def test_native_lines_below_the_level_are_left_out(threshold, written, capsys):
    setLogLevel(threshold)

    for level in ("trace", "debug", "info", "warning", "error"):
        cpp_log(level, "x")

    assert lines_of(capsys.readouterr().err) == [f"[poptorch:cpp] [{level}] x" for level in written]


@pytest.mark.parametrize("level", ["trace", "warning"])
def test_enabled_tells_what_would_be_written(level, capsys):
    cpp_log(level, "x")

    assert cpp_log_enabled(level) == bool(capsys.readouterr().err)


def test_native_lines_go_to_stdout_if_asked(monkeypatch, capsys):
    monkeypatch.setenv("POPTORCH_LOG_DEST", "stdout")

    cpp_log("error", "x")

    assert lines_of(capsys.readouterr().out) == ["[poptorch:cpp] [error] x"]


def test_native_lines_are_appended_to_a_file_if_asked(monkeypatch, tmp_path):
    log_file = tmp_path / "poptorch.log"
    log_file.write_text("[00:00:00.000] kept\n")
    monkeypatch.setenv("POPTORCH_LOG_DEST", str(log_file))

    cpp_log("error", "x")

    assert lines_of(log_file.read_text()) == ["kept", "[poptorch:cpp] [error] x"]


def test_repeated_native_lines_stop_after_four_and_are_counted(capsys):
    for _ in range(10):
        cpp_log("error", "again")
    cpp_log("error", "other")

    expected = ["again"] * 4 + ["last line repeated 6 more times", "other"]
    assert lines_of(capsys.readouterr().err) == [f"[poptorch:cpp] [error] {message}" for message in expected]


def test_alternating_native_lines_are_all_written(capsys):
    for _ in range(10):
        cpp_log("error", "a")
        cpp_log("error", "b")

    assert len(capsys.readouterr().err.splitlines()) == 20


def test_number_of_repeated_native_lines_can_be_set(capsys):
    set_max_repeat_logs(1)

    cpp_log("error", "again")
    cpp_log("error", "again")

    assert len(capsys.readouterr().err.splitlines()) == 1
