"""Conversations: kept, shown and streamed."""
