"""The small header reads the names of devices as the standard library does, and is used for nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from porting.engines.aot.light_headers import install_light_headers, needs_one_pattern

PROGRAM = r"""
#include <regex>
#include <iostream>
#include <string>
int main(int, char** arguments) {
  std::string device_str(arguments[1]);
  std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");
  std::smatch sm;
  bool matched = std::regex_match(device_str, sm, re);
  std::cout << matched;
  if (matched) std::cout << " " << sm[1].str() << " " << sm[3].matched << " " << sm[3].str();
}
"""
USES = PROGRAM[PROGRAM.index("std::regex re") : PROGRAM.index("  std::cout << matched")]


def test_it_is_for_the_pattern_of_devices_alone():
    assert needs_one_pattern("#include <regex>\n" + USES)
    assert not needs_one_pattern("#include <regex>\n" + USES.replace("mps", "mps|ipu"))
    assert not needs_one_pattern("#include <regex>\n" + USES + "std::regex_search(a, b);")


def test_the_compiler_finds_it_before_that_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/mine")

    is_used = install_light_headers(tmp_path / "headers")

    places = os.environ["CPLUS_INCLUDE_PATH"].split(os.pathsep)
    assert places == ([str(tmp_path / "headers"), "/mine"] if is_used else ["/mine"])
    assert (tmp_path / "headers" / "regex").is_file() is is_used


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_it_reads_what_the_standard_library_reads(tmp_path, monkeypatch):
    monkeypatch.delenv("CPLUS_INCLUDE_PATH", raising=False)
    (tmp_path / "program.cpp").write_text(PROGRAM)
    names = ["cpu", "cuda", "cuda:12", "xpu:0", "cpu:", "cuda:x", "ipu", "", "cuda:1:2", "mps:3 "]
    printed = []

    for number in range(2):
        if number and not install_light_headers(tmp_path / "headers"):
            pytest.skip("the headers of this torch are others")
        program = str(tmp_path / f"program{number}")
        subprocess.run(["g++", "-std=c++17", str(tmp_path / "program.cpp"), "-o", program], check=True)
        printed.append([subprocess.run([program, name], capture_output=True, check=True).stdout for name in names])

    assert printed[0] == printed[1]
