"""This package describes accelerators and the systems built of them as data; plans and reports read it.

Users add a machine with one JSON file of the same form.
"""

from .machine import DEFAULT, Chip, Links, Machine, find_chip, find_machine, list_chips, list_machines

__all__ = ["DEFAULT", "Chip", "Links", "Machine", "find_chip", "find_machine", "list_chips", "list_machines"]
