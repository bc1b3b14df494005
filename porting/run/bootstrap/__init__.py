"""Make the simulator importable under the vendor's name, for every interpreter with this folder on its `PYTHONPATH`."""
