"""Train a transformer in a pipeline of IPUs: stages by name, recomputation, and whether it fits into memory."""
