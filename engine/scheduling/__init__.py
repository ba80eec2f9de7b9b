"""Which sequences compute which tokens in the next step. Plain Python, no tensors."""
