"""What all packages may use and that knows nothing of any: files, processes, fair timing, and loading late."""
