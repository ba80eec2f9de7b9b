"""Models on this machine, and the starter model."""
