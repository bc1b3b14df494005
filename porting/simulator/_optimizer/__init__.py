"""Run the device's optimizer: these modules read its settings, keep its state, and name both as PopTorch does."""
