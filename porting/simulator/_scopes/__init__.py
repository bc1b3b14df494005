"""Keep the blocks, names and groups that `forward` puts operators into, and check what the device allows of them."""
