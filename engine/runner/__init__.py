"""Turning a scheduled batch into tensors, logits and sampled tokens."""
