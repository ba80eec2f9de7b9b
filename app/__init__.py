"""The desktop program: a window whose chat and graphs show what its own engine and the memory do."""
