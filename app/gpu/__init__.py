"""Who holds memory, and how to get it back safely. No Qt in here."""
