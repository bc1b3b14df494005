"""Errors carry their type, message, context and recovery action, and survive pickling."""

from __future__ import annotations

import pickle

import pytest

from porting.simulator.errors import (
    Error,
    NotSimulatedError,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
    native_error,
    not_simulated,
)


def refusal(name: str = "poptorch.MultiConv", why: str = "") -> NotSimulatedError:
    with pytest.raises(NotSimulatedError) as caught:
        not_simulated(name, why)
    return caught.value


def test_hierarchy_is_that_of_poptorch():
    assert Error.__bases__ == (Exception,)
    assert RecoverableError.__bases__ == (Error,)
    assert UnrecoverableError.__bases__ == (Error,)


def test_python_error_names_its_type_in_front_of_the_message():
    error = createPoptorchError("Device is not attached")

    assert type(error) is Error
    assert str(error) == "'poptorch_py_error': Device is not attached"
    assert (error.type, error.message, error.location) == ("poptorch_py_error", "Device is not attached", "")


def test_error_raised_by_a_user_has_its_text_as_message():
    assert Error("out of luck").message == "out of luck"


@pytest.mark.parametrize(("arguments", "message"), [((), ""), ((3,), "3"), (("wibble", 3), "wibble")])
def test_error_is_made_of_any_arguments_like_other_exceptions(arguments, message):
    error = Error(*arguments)

    assert (error.args, error.message, error.location) == (arguments, message, "")


def test_native_error_names_place_type_message_and_context():
    error = native_error("Unknown ops", context=["compiling", "LowerToPopart"])

    first, *context = str(error).splitlines()
    assert first.startswith("In test_errors.py:")
    assert first.endswith(": 'poptorch_cpp_error': Unknown ops")
    assert context == ["Error raised in:", "  [0] compiling", "  [1] LowerToPopart"]


def test_native_error_keeps_context_out_of_the_message():
    error = native_error("Unknown ops", context=["compiling"])

    assert error.message == "Unknown ops"
    assert error.location == "  [0] compiling"


def test_error_with_a_recovery_action_is_recoverable_and_says_so():
    error = native_error("link lost", kind="poplar_recoverable_runtime_error", recovery_action="FULL_RESET")

    assert isinstance(error, RecoverableError)
    assert error.recovery_action == "FULL_RESET"
    assert "Recovery action required: FULL_RESET" in str(error)


def test_unrecoverable_runtime_error_has_a_class_of_its_own():
    assert isinstance(native_error("broken", kind="poplar_unrecoverable_runtime_error"), UnrecoverableError)


def test_long_native_error_is_written_whole_to_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    error = native_error("\n".join(f"line {number}" for number in range(100)))

    assert len(str(error).splitlines()) == 81
    assert (tmp_path / "poptorch_error.log").read_text().splitlines()[-1] == "line 99"


def test_long_native_error_says_when_the_file_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poptorch_error.log").mkdir()

    error = native_error("\n" * 100)

    assert "could not be written to poptorch_error.log" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        createPoptorchError("x"),
        native_error("x", kind="poplar_recoverable_runtime_error", context=["c"], recovery_action="IPU_RESET"),
        refusal(),
    ],
    ids=["python", "native", "not simulated"],
)
def test_errors_survive_pickling(error):
    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_not_simulated_is_an_error_of_the_api_and_an_attribute_error():
    assert NotSimulatedError.__bases__ == (Error, AttributeError)


def test_not_simulated_carries_a_finding_with_the_users_place():
    finding = refusal("poptorch.MultiConv", "the convolutions would run apart").finding

    assert finding.code == "S001"
    assert finding.place.file.endswith("test_errors.py")
    assert finding.notes == ("the convolutions would run apart",)
    assert finding.help


def test_text_of_not_simulated_names_the_missing_name_and_the_code():
    assert "error[S001]: the simulator does not have `poptorch.MultiConv`" in str(refusal())
