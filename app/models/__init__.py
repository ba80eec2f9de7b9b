"""Choosing a model and fetching the starter."""
