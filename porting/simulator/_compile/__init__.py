"""Compile a model and its first arguments to an executable; the device session uses it."""
