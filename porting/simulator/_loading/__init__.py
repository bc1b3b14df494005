"""How the data loader reads ahead: processes, their shared memory, and the batches of a whole device call."""
