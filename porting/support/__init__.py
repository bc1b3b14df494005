"""Help for all packages that knows nothing of any: files, processes, fair timing, and loading late."""
