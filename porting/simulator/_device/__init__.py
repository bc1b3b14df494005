"""The simulated device: which one a model is for, who holds it, and what is on it."""
