"""Read ahead for the data loader: its processes, their shared memory, and the batches of a whole device call."""
