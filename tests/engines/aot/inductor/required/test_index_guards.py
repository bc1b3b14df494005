"""An index out of bounds is an exception of compiled code, in a loop of threads too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.engines.aot.library import load_library
from tests.engines.compiled_step import NUM_TOKENS, results_and_state, step_arguments


@pytest.mark.slow
@pytest.mark.parametrize("index", [NUM_TOKENS, -NUM_TOKENS - 1, 2**40])
@pytest.mark.parametrize("argument", [2, 3], ids=["token", "label"])
def test_an_index_out_of_bounds_is_an_error_even_in_a_loop_of_threads(folder, index, argument):
    run, arguments = load_library(folder), step_arguments()
    arguments[argument][100] = index

    with pytest.raises(IndexError, match="out of bounds"):
        run(arguments)


@pytest.mark.slow
def test_a_run_after_an_index_out_of_bounds_is_like_any_other(folder):
    run, arguments = load_library(folder), step_arguments()
    arguments[2][100] = NUM_TOKENS
    with pytest.raises(IndexError):
        run(arguments)

    found = results_and_state(run)

    torch.testing.assert_close(found, results_and_state(load_library(folder)))


class Pairs(nn.Module):
    """Picks the pairs of nine vectors from their products, as recommenders do."""

    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Linear(4, 32), nn.Linear(36, 1)
        rows, columns = torch.tril_indices(9, 9, -1)
        self.register_buffer("pairs", rows * 9 + columns)

    def forward(self, x):
        vectors = self.embed(x.view(-1, 9, 4))
        return self.last(torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs])


@pytest.mark.slow
def test_what_is_picked_may_be_stored_and_loaded_in_one_loop(tmp_path):
    torch.manual_seed(0)
    model = Pairs()
    options = PortOptions(engine="aot", precision="mixed", accumulation=4, cache_dir=tmp_path)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    ported = to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")

    # what cannot be compiled, or computes something else than replay, would be replayed
    ported(torch.randn(64, 36), torch.randn(64, 1))

    (record,) = ported.report().executors
    assert record.engine == "aot"
