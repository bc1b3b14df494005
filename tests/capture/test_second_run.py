"""A second run of `forward` leaves no trace on Python's side, whatever it does to containers."""

from __future__ import annotations

import builtins
import copy
from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting.capture.second_run import without_trace

names = st.text("abc", min_size=1, max_size=2)
containers = st.one_of(
    st.dictionaries(names, st.integers()),
    st.lists(st.integers()),
    st.sets(st.integers(0, 9)),
    st.lists(st.integers()).map(deque),
    st.dictionaries(names, st.lists(st.integers()), max_size=3),
)


@given(kept=containers, data=st.data())
def test_a_container_has_its_content_and_order_back(kept, data):
    changed = data.draw(containers.filter(lambda other: type(other) is type(kept)))
    module = nn.Identity()
    module.kept, before = kept, copy.deepcopy(kept)

    with without_trace([("", module)]):
        kept.clear()
        (kept.update if isinstance(kept, (dict, set)) else kept.extend)(changed)

    assert module.kept is kept
    assert kept == before


def test_an_inner_container_has_its_content_back():
    module = nn.Identity()
    module.kept = {"seen": [1, 2]}

    with without_trace([("", module)]) as changes:
        module.kept["seen"].append(3)
        module.kept["more"] = 1

    assert module.kept == {"seen": [1, 2]}
    assert changes == {"kept": ("1 items", "2 items")}


def test_the_names_that_python_runs_with_stay_where_they_are():
    """A program run by `exec` has a dictionary of globals, which has that of the builtins."""
    module = nn.Identity()
    module.names = {"__builtins__": vars(builtins)}

    with without_trace([("", module)]):
        builtins.forward_has_left_this = 1

    assert eval("isinstance(len([]), int)", module.names)
    assert not hasattr(builtins, "forward_has_left_this")
