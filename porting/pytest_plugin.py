"""Extend pytest: `assert_port_equal` proves a port in a test, and tests that need IPUs are skipped without them.

pytest loads it by itself where porting is installed. Importing it loads no torch.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Mapping, Union

import pytest

if TYPE_CHECKING:  # loads torch
    import torch

    from porting.structure import Structure
    from porting.verify import Certificate

__all__ = ["assert_port_equal", "find_obstacle"]

_STEPS = 5


def assert_port_equal(
    model: torch.nn.Module,
    loss: Union[Callable[..., Any], Mapping[str, Any], None] = None,
    batch: Structure = None,
    **settings: Any,
) -> Certificate:
    """Assert that a port of `model` trains as plain PyTorch does; return its certificate.

    `batch` is one batch, which is repeated, a list of batches or a loader. `settings` are those of `porting.verify`:
    `optimizer=`, `options=`, `ported=`, ...; five steps are compared unless `steps=` says otherwise. The model is as
    before afterwards. AssertionError has the whole certificate. Raises PortingError for what cannot be ported.
    """
    __tracebackhide__ = True
    from porting.verify.verify import verify

    certificate = verify(model, loss, batch, **{"steps": _STEPS, **settings})
    if not certificate.holds:
        raise AssertionError(str(certificate))
    return certificate


@functools.lru_cache(maxsize=None)
def find_obstacle(num_ipus: int = 1) -> str:
    """Return the reason why tests cannot have so many IPUs, "" if they can. `PORTING_DEVICE=sim` forbids IPUs."""
    from porting.adapters.backends import find_backend
    from porting.diagnostics import DeviceError, join_names

    try:
        backend = find_backend("auto", simulator=lambda: None)
    except DeviceError as error:
        return join_names([error.finding.message, *error.finding.notes], quote="")
    if backend.is_simulator:
        return backend.finding.notes[0] if backend.finding is not None else "PORTING_DEVICE asks for the simulator"
    if not backend.module.ipuHardwareIsAvailable(num_ipus):
        return f"{backend.name} has fewer than {num_ipus} free IPUs on this machine"
    return ""


# -- hooks -------------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "ipu: needs an IPU, and is skipped where there is none")
    config.addinivalue_line("markers", "needs_ipus(n): needs so many IPUs, and is skipped where there are fewer")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs more IPUs than the machine has."""
    needed = [1] if item.get_closest_marker("ipu") is not None else []
    needed += [_read_count(item, mark) for mark in item.iter_markers("needs_ipus")]
    obstacle = find_obstacle(max(needed)) if needed else ""
    if obstacle:
        pytest.skip(f"needs {max(needed)} IPU{'' if max(needed) == 1 else 's'}: {obstacle}")


@pytest.fixture(name="assert_port_equal", scope="session")
def _give_assertion() -> Callable[..., Certificate]:
    """Give the function `assert_port_equal(model, loss, batch)`, which proves that a port equals plain PyTorch."""
    return assert_port_equal


def _read_count(item: pytest.Item, mark: pytest.Mark) -> int:
    given = [*mark.args, *mark.kwargs.values()]
    if len(given) != 1 or type(given[0]) is not int or given[0] < 1:
        raise pytest.UsageError(f"{item.nodeid}: `needs_ipus` takes a number of IPUs, as in `needs_ipus(4)`")
    return int(given[0])
