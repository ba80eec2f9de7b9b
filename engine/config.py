"""How an engine is to be built: frozen, no torch."""

from dataclasses import dataclass
from enum import Enum

from engine.errors import UsageError

MIN_BLOCK_SIZE = 16
MAX_BLOCK_SIZE = 256


class SchedulingPolicy(Enum):
    """What a step prefers while prompts and answers compete for it."""

    MIXED = "mixed"  # every answer gets its token, prompts share what is left of the budget (Sarathi, OSDI 2024)
    PREFILL_FIRST = "prefill-first"  # prompts alone while there are any: early first tokens, answers that stutter


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the user asks for. None means: let the engine decide.

    Attributes:
        model: a GGUF file, a safetensors folder, or a name that `engine.catalog` knows.
        device: "auto", "cpu", "cuda", "cuda:1".
        dtype: "auto", "bfloat16", "float16", "float32".
        block_size: tokens in one KV block; a power of two from 16 to 256.
        num_kv_blocks: usable blocks (the padding block comes on top).
        kv_bytes: size of the KV cache instead of a number of blocks.
        max_model_len: longest prompt plus answer, in tokens.
        max_num_seqs: most sequences that run at once ("slots").
        max_num_batched_tokens: token budget of one step.
        policy: what a step prefers.
        max_chunk_tokens: most tokens of one prompt in one step; None means as many as the budget has left.
        prefix_caching: reuse blocks of equal prefixes.
        threads: CPU threads of the engine.
        reserved_cores: physical cores left to others when `threads` is not given (the window keeps one).
        own_limit_fraction: the largest share of the device this process may hold.
        cuda_graphs: capture decode steps where the card and the attention allow it.
        random_weights: build this shape with random weights instead of reading a model ("qwen3-0.6b").
    """

    model: str = ""
    device: str = "auto"
    dtype: str = "auto"
    block_size: int = 16
    num_kv_blocks: int | None = None
    kv_bytes: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 256
    policy: SchedulingPolicy = SchedulingPolicy.MIXED
    max_chunk_tokens: int | None = None
    prefix_caching: bool = True
    threads: int | None = None
    reserved_cores: int = 0
    own_limit_fraction: float | None = None
    cuda_graphs: bool = True
    random_weights: str | None = None

    def __post_init__(self) -> None:
        size = self.block_size
        if not MIN_BLOCK_SIZE <= size <= MAX_BLOCK_SIZE or size & (size - 1):
            raise UsageError(f"The block size is {size}; it must be 16, 32, 64, 128 or 256 tokens.")
        if self.num_kv_blocks is not None and self.num_kv_blocks < 1:
            raise UsageError(f"{self.num_kv_blocks} KV blocks were asked for; at least 1 is needed.")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"{self.threads} CPU threads were asked for; at least 1 is needed.")
        if self.max_num_seqs < 1:
            raise UsageError(f"{self.max_num_seqs} slots were asked for; at least 1 is needed.")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise UsageError(
                f"The token budget of a step is {self.max_num_batched_tokens}, below the {self.max_num_seqs} slots; "
                "each running sequence needs one token a step."
            )
        if self.max_chunk_tokens is not None and self.max_chunk_tokens < 1:
            raise UsageError(f"Chunks of {self.max_chunk_tokens} tokens were asked for; at least 1 token is needed.")
