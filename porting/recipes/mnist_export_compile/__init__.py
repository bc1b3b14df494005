"""Train MNIST in three processes: one exports the training step, one compiles it, one trains with the executable."""
