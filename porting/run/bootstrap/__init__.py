"""A folder for `PYTHONPATH`: an interpreter that starts with it has the simulator under the vendor's name."""
