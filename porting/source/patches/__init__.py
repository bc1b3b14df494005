"""Changes of users' programs that put a finding right, where the change is mechanical; formatting is kept (LibCST)."""
