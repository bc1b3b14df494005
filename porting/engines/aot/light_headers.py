"""A small `<regex>` for the compiler: that of the standard library costs more to compile than a small program.

Torch's runtime of compiled programs reads the name of a device, "cpu" or "cuda:1", by a regular expression. To compile
that takes 2.5 of 6 seconds of a small program's wrapper. Its one pattern is read here by hand.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

__all__ = ["install_light_headers", "needs_one_pattern"]

_PATTERN = 'std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");'
_RUNTIME = "torch/csrc/inductor/aoti_runtime"

# With the other headers that <regex> brings, which torch's rely on.
_REGEX = """
#pragma once
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <locale>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace std {
struct porting_group {
  bool matched = false;
  string text;
  string str() const { return text; }
};
struct smatch {
  porting_group groups[4];
  const porting_group& operator[](size_t index) const { return groups[index]; }
};
struct regex {
  explicit regex(const char*) {}
};
// (cpu|cuda|xpu|mps)(:([0-9]+))?
inline bool regex_match(const string& text, smatch& found, const regex&) {
  const size_t colon = text.find(':');
  const string name = text.substr(0, colon);
  if (name != "cpu" && name != "cuda" && name != "xpu" && name != "mps") return false;
  found.groups[1] = {true, name};
  if (colon == string::npos) return true;
  const string index = text.substr(colon + 1);
  if (index.empty() || index.find_first_not_of("0123456789") != string::npos) return false;
  found.groups[2] = {true, text.substr(colon)};
  found.groups[3] = {true, index};
  return true;
}
}  // namespace std
"""


def install_light_headers(folder: Path) -> bool:
    """Let the C++ compilers that this process starts find the header, in `folder`; tell whether they do.

    They do not where torch's headers are others than those that it is for.
    """
    include = Path(torch.__file__).parent / "include" / _RUNTIME
    headers = sorted(include.glob("*.h"))
    if not needs_one_pattern("\n".join(header.read_text(encoding="utf-8") for header in headers)):
        return False
    folder.mkdir()
    (folder / "regex").write_text(_REGEX, encoding="utf-8")
    # searched after torch's folders and before those of the system
    others = os.environ.get("CPLUS_INCLUDE_PATH", "")
    os.environ["CPLUS_INCLUDE_PATH"] = os.pathsep.join(filter(None, (str(folder), others)))
    return True


def needs_one_pattern(source: str) -> bool:
    """Tell whether C++ source uses of regular expressions the names of devices, and nothing else.

    >>> needs_one_pattern("int main() {}")
    False
    """
    uses = [line.strip() for line in source.splitlines() if "regex" in line or "smatch" in line]
    return uses == [
        "#include <regex>",
        _PATTERN,
        "std::smatch sm;",
        "bool matched = std::regex_match(device_str, sm, re);",
    ]
