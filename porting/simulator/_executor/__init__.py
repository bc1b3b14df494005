"""Where executors come from, and what reading an attribute of one gives."""
