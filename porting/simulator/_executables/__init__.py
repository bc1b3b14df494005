"""Executables as files: saving, loading, the cache."""
