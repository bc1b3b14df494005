"""Collections of garbage pause and go on as they were."""

from __future__ import annotations

import gc

import pytest

from porting.support.garbage_pause import garbage_pause


def test_collections_go_on_after_an_error():
    with pytest.raises(ValueError, match="inside"), garbage_pause():
        raise ValueError("inside")

    assert gc.isenabled()


def test_a_pause_inside_a_pause_ends_with_the_outer_one():
    with garbage_pause():
        with garbage_pause():
            pass
        assert not gc.isenabled()

    assert gc.isenabled()
