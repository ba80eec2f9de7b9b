"""The least that is a model's file: a GGUF header that promises nothing. For tests whose engine reads no file."""

import struct

EMPTY_GGUF = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)  # version 3, no tensors, no fields
