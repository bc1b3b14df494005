"""Names of PopTorch that the simulator knows of and does not have say so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._model_access import UNSIMULATED_MEMBERS
from porting.simulator.errors import NotSimulatedError


@pytest.mark.parametrize("name", sorted(simulator.NOT_SIMULATED))
def test_a_known_name_of_the_module_is_refused_by_name(name):
    with pytest.raises(NotSimulatedError, match=f"the simulator does not have `poptorch.{name}`"):
        getattr(simulator, name)


@pytest.mark.parametrize("name", sorted(UNSIMULATED_MEMBERS))
def test_a_known_member_of_executors_is_refused_by_name(name):
    executor = simulator.inferenceModel(nn.ReLU())

    with pytest.raises(NotSimulatedError, match=f"the simulator does not have `PoplarExecutor.{name}`"):
        getattr(executor, name)


def test_a_refusal_is_an_error_of_the_api_and_an_attribute_error():
    assert issubclass(NotSimulatedError, (simulator.Error, AttributeError))
    assert not hasattr(simulator, "MultiConv")


def test_unknown_names_are_plain_attribute_errors():
    with pytest.raises(AttributeError, match="module 'porting.simulator' has no attribute 'wibble'") as caught:
        simulator.wibble  # noqa: B018

    assert type(caught.value) is AttributeError


def test_names_that_are_not_simulated_are_not_listed():
    assert not simulator.NOT_SIMULATED & set(simulator.__all__)
    assert dir(simulator) == sorted(simulator.__all__)


def test_weights_that_differ_between_replicas_are_refused():
    executor = simulator.inferenceModel(nn.Linear(1, 1))

    with pytest.raises(NotSimulatedError, match="PoplarExecutor.weight.replicaGrouping"):
        executor.weight.replicaGrouping(
            simulator.CommGroupType.NoGrouping, 0, simulator.VariableRetrievalMode.OnePerGroup
        )


def test_an_option_with_an_effect_is_refused_when_the_model_compiles():
    options = simulator.Options()
    options.anchorTensor("a", "b")
    executor = simulator.inferenceModel(nn.ReLU(), options)

    with pytest.raises(NotSimulatedError, match="poptorch.Options.anchorTensor"):
        executor(torch.ones(1))


def test_there_is_no_hardware():
    assert not simulator.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="No IPU hardware available on this system"):
        simulator.ipuHardwareVersion()


@pytest.mark.parametrize("name", sorted(simulator.poptorch_core.TestErrorType.__members__))
def test_test_errors_have_their_context_apart_from_the_message(name):
    with pytest.raises(simulator.Error) as caught:
        simulator.poptorch_core._throwTestError(simulator.poptorch_core.TestErrorType[name])

    error = caught.value
    for level in ("throwTestError::bottomLevel", "throwTestError::topLevel"):
        assert level in error.args[0]
        assert error.location.count(level) == 1
        assert level not in error.message


@pytest.mark.parametrize(
    ("name", "cls", "kind"),
    [
        ("PoplarRecoverableFullReset", simulator.RecoverableError, "poplar_recoverable_runtime_error"),
        ("PoplarUnrecoverable", simulator.UnrecoverableError, "poplar_unrecoverable_runtime_error"),
        ("PoplarLinkError", simulator.Error, "poplar_link_error"),
    ],
)
def test_test_errors_have_the_class_and_type_of_their_origin(name, cls, kind):
    with pytest.raises(simulator.Error) as caught:
        simulator.poptorch_core._throwTestError(simulator.poptorch_core.TestErrorType[name])

    assert (type(caught.value), caught.value.type) == (cls, kind)


def test_a_recoverable_error_names_the_action():
    kinds = simulator.poptorch_core.TestErrorType

    with pytest.raises(simulator.RecoverableError) as caught:
        simulator.poptorch_core._throwTestError(kinds.PoplarRecoverableFullReset)

    assert caught.value.recovery_action == "FULL_RESET"


def test_unknown_compiler_options_are_refused_when_the_model_compiles():
    options = simulator.Options()
    options._Popart.set("wibble", 1)
    executor = simulator.inferenceModel(nn.ReLU(), options)

    with pytest.raises(simulator.Error, match="Unknown uint64 option wibble"):
        executor(torch.ones(1))


def test_printing_a_model_shows_its_blocks_and_then_the_object(capsys):
    simulator.print(nn.ReLU())

    assert capsys.readouterr().out.splitlines() == ["ReLU()", "ReLU()"]


def test_the_errors_are_those_of_the_core():
    assert simulator.Error is simulator.poptorch_core.Error
    assert simulator.ConfigFileError is simulator.options.ConfigFileError


def test_the_version_says_that_it_is_a_simulator():
    assert simulator.__version__ == "3.4.0-simulator"
