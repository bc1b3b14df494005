"""Changes that make programs faster, more exact or sooner compiled: each is left out where torch lacks its parts."""
