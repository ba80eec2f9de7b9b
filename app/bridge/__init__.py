"""The only door between the window and the engine thread."""
