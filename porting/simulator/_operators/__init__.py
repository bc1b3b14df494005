"""Implement the functions that programs call in `forward`; `poptorch.ops` exports them."""
