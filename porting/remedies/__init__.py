"""Exchange code that a device cannot take while it traces: libraries' code by remedies, operators by substitutes.

`LossInForward` applies them, and programs register their own.
"""

from porting.remedies.application import Remedies
from porting.remedies.entries import Edit, Fallback, OperatorSubstitute, Patch, Remedy
from porting.remedies.library_table import list_remedies, register_remedy
from porting.remedies.masked_rows import settle
from porting.remedies.operator_table import list_substitutes, op

__all__ = [
    "Edit",
    "Fallback",
    "OperatorSubstitute",
    "Patch",
    "Remedies",
    "Remedy",
    "list_remedies",
    "list_substitutes",
    "op",
    "register_remedy",
    "settle",
]
