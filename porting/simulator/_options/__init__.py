"""Options: their groups, what of them is valid, and the copy that each executor has."""
