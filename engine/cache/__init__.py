"""The paged KV cache: the pool that counts blocks, and the tensors that hold them."""
