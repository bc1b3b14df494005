"""What an executor does: compile, take a device, run calls, measure them."""
