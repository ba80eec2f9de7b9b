"""Attention over the paged cache, by one of several back ends."""
