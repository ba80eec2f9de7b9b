"""The dashboard beside the chat: memory by process, KV blocks, batching steps."""
