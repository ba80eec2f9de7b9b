"""Files that the program ships: icons and scenarios, read through importlib.resources."""
