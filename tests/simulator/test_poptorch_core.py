"""The stand-in for PopTorch's compiled part has the names that programs and tests use."""

from __future__ import annotations

import pytest
import torch

import porting.simulator as simulator

core = simulator.poptorch_core


def test_shapes_of_a_graph_follow_from_those_of_its_inputs():
    graph = torch._C.parse_ir(
        """
        graph(%x : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)):
          %transposed : Tensor = aten::t(%x)
          %product : Tensor = aten::mm(%x, %transposed)
          return (%product)
        """
    )

    core.propagateInputShapes(graph)

    assert [output.type().sizes() for output in graph.outputs()] == [[2, 2]]


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 6])
def test_levels_of_the_graph_compilers_log_have_numbers(level):
    core.setPopartLogLevel(level)


@pytest.mark.parametrize("level", [5, -1, "DEBUG"])
def test_another_level_of_the_graph_compilers_log_is_an_error(level):
    with pytest.raises(ValueError, match="Invalid log level integer"):
        core.setPopartLogLevel(level)


def test_the_errors_are_those_of_the_package():
    assert core.Error is simulator.Error
    assert core.RecoverableError is simulator.RecoverableError
    assert core.UnrecoverableError is simulator.UnrecoverableError


def test_nothing_is_compiled_outside_a_compilation():
    assert core.isCompilingWithDispatcher() is False


def test_leaving_the_process_twice_is_harmless():
    core.poptorchAtExit()
    core.poptorchAtExit()


def test_origins_of_test_errors_have_numbers():
    assert [int(origin) for origin in core.TestErrorType.__members__.values()] == list(range(8))


@pytest.mark.parametrize("name", sorted(core.TestErrorType.__members__))
def test_test_errors_have_their_context_apart_from_the_message(name):
    with pytest.raises(simulator.Error) as caught:
        core._throwTestError(core.TestErrorType[name])

    error = caught.value
    for level in ("throwTestError::bottomLevel", "throwTestError::topLevel"):
        assert level in error.args[0]
        assert error.location.count(level) == 1
        assert level not in error.message


@pytest.mark.parametrize(
    ("name", "cls", "kind"),
    [
        ("Poptorch", simulator.Error, "poptorch_cpp_error"),
        ("Popart", simulator.Error, "popart_exception"),
        ("PopartInternal", simulator.Error, "popart_internal_exception"),
        ("Poplibs", simulator.Error, "poplibs_exception"),
        ("PoplarUnknown", simulator.Error, "poplar_unknown_runtime_error"),
        ("PoplarRecoverableFullReset", simulator.RecoverableError, "poplar_recoverable_runtime_error"),
        ("PoplarUnrecoverable", simulator.UnrecoverableError, "poplar_unrecoverable_runtime_error"),
        ("PoplarLinkError", simulator.Error, "poplar_link_error"),
    ],
)
def test_test_errors_have_the_class_and_type_of_their_origin(name, cls, kind):
    with pytest.raises(simulator.Error) as caught:
        core._throwTestError(core.TestErrorType[name])

    assert (type(caught.value), caught.value.type) == (cls, kind)
    assert f"'{kind}': {caught.value.message}" in str(caught.value)


def test_a_recoverable_error_names_the_action():
    with pytest.raises(simulator.RecoverableError) as caught:
        core._throwTestError(core.TestErrorType.PoplarRecoverableFullReset)

    assert caught.value.recovery_action == "FULL_RESET"


def test_a_link_error_ends_with_what_the_linker_said():
    with pytest.raises(simulator.Error) as caught:
        core._throwTestError(core.TestErrorType.PoplarLinkError)

    assert caught.value.message.endswith("Output: -lfoo not found")
