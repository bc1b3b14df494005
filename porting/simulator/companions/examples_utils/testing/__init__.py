"""Stand in for `examples_utils.testing`; its functions are in `test_commands`."""

from __future__ import annotations

from ... import refuse_unknown_names

__getattr__ = refuse_unknown_names("examples_utils.testing")
