"""One call of a device: how it is cut into micro-batches, the state it works on, and what runs it."""
