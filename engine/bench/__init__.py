"""Measures the engine on fixed workloads, on a CPU beside transformers in the same run."""
