"""Stand-ins for modules that PopTorch programs import beside it: small, and honest about what they leave out.

Each has the names that programs were seen to use. Any other raises the error S001, which says that it is a stand-in.
Under `porting run` they are provided where the real ones are missing; elsewhere `provide` does it.
"""

from __future__ import annotations

from ...aliases import COMPANIONS, install_aliases

__all__ = ["provide"]


def provide() -> None:
    """Let this process import `popart`, `popdist`, `horovod.torch`, ... where they are not installed.

    >>> provide()
    >>> import popart
    >>> int(popart.SyntheticDataMode.RandomNormal)
    2
    """
    install_aliases(replace={}, provide=COMPANIONS)
