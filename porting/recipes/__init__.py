"""Step-by-step ports that run: each recipe is a folder, each of its steps a few changed lines of the one before."""
