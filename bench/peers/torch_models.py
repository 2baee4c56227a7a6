"""GPT-2 and Llama in plain PyTorch, as one would write them for speed: fused attention, one cross entropy over all tokens.

They follow Hugging Face's configs and initialisation. Without `transformers`, whose classes are a little slower and take more memory.
"""
import torch
import torch.nn.functional as F
from torch import nn


def parameter_groups(model, weight_decay):
    """AdamW's: decay on matrices only, as Heddle has it."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


class Gpt2Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, c):
        super().__init__()
        hidden = c["n_embd"]
        self.heads = c["n_head"]
        self.attention_norm = nn.LayerNorm(hidden, eps=c["layer_norm_epsilon"])
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attention_out = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden, eps=c["layer_norm_epsilon"])
        self.mlp_in = nn.Linear(hidden, 4 * hidden)
        self.mlp_out = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        rows, positions, hidden = x.shape
        q, k, v = (t.view(rows, positions, self.heads, -1).transpose(1, 2) for t in self.qkv(self.attention_norm(x)).split(hidden, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(a.transpose(1, 2).reshape(rows, positions, hidden))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Embedding(c["vocab_size"], c["n_embd"])
        self.positions = nn.Embedding(c["n_positions"], c["n_embd"])
        self.blocks = nn.ModuleList(Gpt2Block(c) for _ in range(c["n_layer"]))
        self.norm = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return next_token_loss(self.norm(x), self.tokens.weight, labels)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, heads, kv_heads = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.head_dim = hidden // heads
        self.attention_norm = nn.RMSNorm(hidden, eps=c["rms_norm_eps"])
        self.q = nn.Linear(hidden, heads * self.head_dim, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(heads * self.head_dim, hidden, bias=False)
        self.mlp_norm = nn.RMSNorm(hidden, eps=c["rms_norm_eps"])
        self.gate = nn.Linear(hidden, c["intermediate_size"], bias=False)
        self.up = nn.Linear(hidden, c["intermediate_size"], bias=False)
        self.down = nn.Linear(c["intermediate_size"], hidden, bias=False)
        self.grouped = heads != kv_heads

    def forward(self, x, cos, sin):
        rows, positions, _ = x.shape
        h = self.attention_norm(x)
        q, k, v = (p(h).view(rows, positions, -1, self.head_dim).transpose(1, 2) for p in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=self.grouped)
        x = x + self.o(a.transpose(1, 2).reshape(rows, positions, -1))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])
        head_dim = c["hidden_size"] // c["num_attention_heads"]
        frequencies = c["rope_theta"] ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        angles = torch.arange(c["max_position_embeddings"]).float()[:, None] * torch.cat([frequencies, frequencies])
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, labels):
        x = self.tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return next_token_loss(self.norm(x), self.tokens.weight, labels)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], dim=-1) * sin.to(x.dtype)


def next_token_loss(x, embedding, labels):
    """The head shares the embedding's weights."""
    return F.cross_entropy(F.linear(x, embedding).flatten(0, 1).float(), labels.flatten())


def initialize(module, std=0.02):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=std)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)


def build(config):
    model = {"gpt2": Gpt2, "llama": Llama}[config["model_type"]](config)
    model.apply(lambda m: initialize(m, config["initializer_range"]))
    return model


class Transformers(nn.Module):
    """The same model by `transformers`' own class."""

    def __init__(self, config):
        super().__init__()
        import transformers

        typed = transformers.AutoConfig.for_model(**config)
        self.model = transformers.AutoModelForCausalLM.from_config(typed, attn_implementation="sdpa")

    def forward(self, ids, labels):
        logits = self.model(input_ids=ids, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
