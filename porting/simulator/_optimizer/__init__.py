"""The device's optimizer: its settings, its state and what it says of them."""
