"""Stand-in for Horovod; what there is of it is in `horovod.torch`."""

from __future__ import annotations

from .. import refuse_unknown_names

__getattr__ = refuse_unknown_names("horovod")
