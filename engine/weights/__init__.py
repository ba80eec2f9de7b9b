"""Reading weights from GGUF files and safetensors folders."""
