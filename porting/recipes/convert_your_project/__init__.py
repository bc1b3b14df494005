"""Convert a training program by a command, in both styles, and take the port out of it again."""
