"""How much memory the KV cache may take: arithmetic apart from measuring."""
