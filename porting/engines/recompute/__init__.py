"""Which values of a step are kept for its backward pass, and which are computed again."""
