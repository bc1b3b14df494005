"""Change the text of C++ that Inductor writes, or refuse to where it is another one; the changes beside use it."""

from __future__ import annotations

from ....torch_insides.parts import make_missing_error

__all__ = ["add_to_header", "require_once"]

_INCLUDE = "#include <torch/csrc/inductor/cpp_prefix.h>\n"


def require_once(text: str, code: str, *, loses: str) -> None:
    """Raise MissingPart unless `text`, which is to be replaced blindly, stands in what Inductor wrote exactly once."""
    if code.count(text) != 1:
        raise make_missing_error(f"line `{text.strip()}` in the kernels of its compiler", loses)


def add_to_header(code: str, added: str, *, loses: str) -> str:
    """Add C++ behind the header of a group of kernels; MissingPart for a torch that writes another one."""
    require_once(_INCLUDE, code, loses=loses)
    return code.replace(_INCLUDE, f"{_INCLUDE}{added}")
