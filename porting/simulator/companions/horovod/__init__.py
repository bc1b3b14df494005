"""Stand in for Horovod; its functions are in `horovod.torch`."""

from __future__ import annotations

from .. import refuse_unknown_names

__getattr__ = refuse_unknown_names("horovod")
