"""Save memory: keep some values of a step for its backward pass, and compute the others again."""
