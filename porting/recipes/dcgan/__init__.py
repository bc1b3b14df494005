"""Port a GAN to a device that has one optimizer: both networks train in one step, or each in a step of its own."""
