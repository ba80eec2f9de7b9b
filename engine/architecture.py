"""The shape of a model: frozen values read from a config.json or from a GGUF header. No torch."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are changed for longer contexts. Names follow transformers' `rope_parameters`.

    Kinds: "default" (not at all), "linear" (all divided by `factor`), "dynamic" (a larger base for a context beyond the
    trained one), "llama3" and "yarn" (by wavelength), "longrope" (frequency i divided by one of two lists' factor i, by
    the length of the context), "factors" (frequency i divided by `factor * frequency_factors[i]`: a GGUF's
    rope_freqs.weight).

    Attributes:
        factor: how much longer the context becomes.
        low_freq_factor, high_freq_factor: llama3's limits, in turns over the original context.
        beta_fast, beta_slow: yarn's limits, in turns over the original context.
        truncate: yarn's limits are rounded to whole channels.
        original_max_position_embeddings: the context before it was stretched, in tokens.
        short_factors, long_factors: longrope's lists, head_dim / 2 numbers each, up to and beyond the original context.
        frequency_factors: head_dim / 2 numbers.
        attention_factor: multiplies cosine and sine, and so each attention score by its square.
    """

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    original_max_position_embeddings: int = 0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    frequency_factors: tuple[float, ...] = ()
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """One decoder of the Llama family.

    Attributes:
        family: "llama", "mistral", "qwen2" or "qwen3".
        head_dim: size of one attention head; need not be hidden_size / num_heads.
        max_position_embeddings: the context that the model was made for, in tokens.
        attention_bias: bias on q, k and v.
        attention_output_bias: bias on the output projection.
        mlp_bias: bias on gate, up and down.
        qk_norm: q and k are normalised head by head before they are rotated.
        layer_windows: for each layer the tokens that a query sees, itself included; None sees all. Empty: all layers
            see all.
        tie_word_embeddings: the output head is the embedding table.
        eos_token_ids: every id that ends an answer.
    """

    family: str
    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    max_position_embeddings: int
    attention_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    layer_windows: tuple[int | None, ...] = ()
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def longest_context_tokens(self) -> int:
        """The longest context that its rotary scaling was made for, where that is asked for."""
        scaling = self.rope_scaling
        match scaling.kind:
            case "dynamic":
                stretched = self.max_position_embeddings * scaling.factor
            case "yarn":
                stretched = scaling.original_max_position_embeddings * scaling.factor
            case _:
                stretched = 0
        return max(self.max_position_embeddings, int(stretched))

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of K and V that one token adds over all layers (times the item size: bytes)."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """Weights, biases and norms; a tied head is counted once."""
        tables = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size
        return tables + self.num_layers * self._layer_parameters + self.hidden_size

    @property
    def _layer_parameters(self) -> int:
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * q_size + 2 * kv_size)
        mlp = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size + 2 * self.head_dim * self.qk_norm
        attention_biases = (q_size + 2 * kv_size) * self.attention_bias + self.hidden_size * self.attention_output_bias
        mlp_biases = (2 * self.intermediate_size + self.hidden_size) * self.mlp_bias
        return attention + mlp + norms + attention_biases + mlp_biases
