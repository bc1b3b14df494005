"""The compiled graph: what the device makes of it, and how others see it."""
