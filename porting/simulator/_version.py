"""Name the version of PopTorch that the simulator stands for."""

VERSION = "3.4.0-simulator"
