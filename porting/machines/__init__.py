"""This package describes accelerators and the systems built of them as data; plans and reports read it.

Users add a machine with one JSON file of the same form.
"""

from .machine import DEFAULT, Chip, Links, Machine, collect_chips, find_chip, find_machine, read_machines

__all__ = ["DEFAULT", "Chip", "Links", "Machine", "collect_chips", "find_chip", "find_machine", "read_machines"]
