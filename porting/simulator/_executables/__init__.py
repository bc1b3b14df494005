"""Save executables as files, load them again, and keep the folder of compiled ones."""
