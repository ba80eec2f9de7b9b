"""The decoder: one implementation for the Llama family."""
