"""An index out of bounds is an exception of compiled code, in a loop of threads too."""

from __future__ import annotations

import pytest
import torch

from porting.engines.aot.library import load_program
from tests.engines.compiled_step import NUM_TOKENS, results_and_state, step_arguments


@pytest.mark.slow
@pytest.mark.parametrize("index", [NUM_TOKENS, -NUM_TOKENS - 1, 2**40])
@pytest.mark.parametrize("argument", [2, 3], ids=["token", "label"])
def test_an_index_out_of_bounds_is_an_error_even_in_a_loop_of_threads(folder, index, argument):
    run, arguments = load_program(folder), step_arguments()
    arguments[argument][100] = index

    with pytest.raises(IndexError, match="out of bounds"):
        run(arguments)


@pytest.mark.slow
def test_a_run_after_an_index_out_of_bounds_is_like_any_other(folder):
    run, arguments = load_program(folder), step_arguments()
    arguments[2][100] = NUM_TOKENS
    with pytest.raises(IndexError):
        run(arguments)

    found = results_and_state(run)

    torch.testing.assert_close(found, results_and_state(load_program(folder)))
