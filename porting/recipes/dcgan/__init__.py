"""A GAN on a device that has one optimizer: both networks in one step, or each in a step of its own."""
