"""This package is the engine `aot`, which makes shared libraries of compiled programs.

They are compiled in another process.
"""
