"""An executor has options of its own, with the output mode decided; the user's are frozen and stay as they were."""

from __future__ import annotations

import pytest

from porting.simulator import Error, Options, OutputMode
from porting.simulator._options.executor_options import make_executor_options


@pytest.mark.parametrize(("training", "mode"), [(True, OutputMode.Final), (False, OutputMode.All)])
def test_the_mode_decides_what_a_call_returns(training, mode):
    options = Options()

    own = make_executor_options(options, training=training)

    assert own.output_mode == mode
    assert options.defaultOutputMode()


def test_an_output_mode_of_the_users_is_kept():
    own = make_executor_options(Options().outputMode(OutputMode.Sum), training=True)

    assert own.output_mode == OutputMode.Sum


def test_the_users_options_are_frozen_and_the_copy_is_not():
    options = Options()

    own = make_executor_options(options, training=True)

    own.deviceIterations(2)
    with pytest.raises(AttributeError, match="frozen"):
        options.deviceIterations(2)


def test_an_anchor_without_a_mode_has_that_of_the_model():
    options = Options().outputMode(OutputMode.EveryN, 2)
    options.anchorTensor("own", "a", OutputMode.All)
    options.anchorTensor("inherits", "b")

    own = make_executor_options(options, training=True)

    assert [tuple(own.anchored_tensors[name][2:]) for name in ("own", "inherits")] == [
        (OutputMode.All, 1),
        (OutputMode.EveryN, 2),
    ]


def test_inference_accumulates_nothing():
    options = Options()
    options.Training.gradientAccumulation(2)

    with pytest.raises(Error, match="gradientAccumulation to 1"):
        make_executor_options(options, training=False)


def test_other_types_are_no_options():
    with pytest.raises(Error, match="Expected poptorch.Options"):
        make_executor_options({"replicas": 2}, training=True)
