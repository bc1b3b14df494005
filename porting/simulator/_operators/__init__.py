"""The functions that programs call in `forward`, and the operators that a device has or lacks."""
