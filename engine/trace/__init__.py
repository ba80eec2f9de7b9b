"""Recording steps and playing scenarios."""
