"""What is tested on a card: `python -m pytest tests/gpu`."""
