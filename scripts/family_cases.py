"""The tiny models on which Heddle is compared with transformers: every family, every feature of its configuration.

Configurations are in the spelling of transformers 4, which is that of nearly all published models; make_family_goldens.py has
transformers 5 write the other. What a case covers is read from its configuration (`features_of`), never named by hand.
"""

VOCABULARY = 64
ORIGINAL = 16  # positions before stretching, in the rope types that have them: rows lie on both sides

DECODER = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               max_position_embeddings=64, rms_norm_eps=1e-3, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False,
               attention_dropout=0.0, torch_dtype="float32")
GEMMA = dict(DECODER, head_dim=16, hidden_activation="gelu_pytorch_tanh")
GEMMA2 = dict(GEMMA, query_pre_attn_scalar=24, sliding_window=6, attn_logit_softcapping=4.0, final_logit_softcapping=6.0)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=192, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
            bos_token_id=None, eos_token_id=None, layer_norm_epsilon=1e-4, torch_dtype="float32")

FAMILIES = {
    "llama": DECODER,
    "mistral": dict(DECODER, head_dim=8, sliding_window=None),
    "qwen2": dict(DECODER, use_sliding_window=False, sliding_window=5, max_window_layers=1),
    "qwen3": dict(DECODER, head_dim=16, use_sliding_window=False),
    "gpt2": GPT2,
    "gemma": dict(GEMMA, hidden_activation=None, hidden_act="gelu"),  # as its first releases say it
    "gemma2": GEMMA2,
    "gemma3_text": dict(GEMMA2, num_hidden_layers=3, sliding_window_pattern=3, rope_local_base_freq=100.0, attn_logit_softcapping=None,
                        final_logit_softcapping=None),
    "phi3": dict(DECODER, resid_pdrop=0.0, embd_pdrop=0.0, sliding_window=None, original_max_position_embeddings=ORIGINAL),
    "olmo2": DECODER,
    "granite": dict(DECODER, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=1.7),
    "smollm3": dict(DECODER, no_rope_layer_interval=2, use_sliding_window=False, sliding_window=None),
}

# A feature's changes to the family's configuration; None removes nothing: it is written as null.
WINDOW = {
    "mistral": dict(sliding_window=7),
    "qwen2": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "phi3": dict(sliding_window=9),
    "smollm3": dict(use_sliding_window=True, sliding_window=6),
}
LAYER_TYPES = {
    "qwen2": dict(use_sliding_window=True, sliding_window=6, max_window_layers=0, num_hidden_layers=3),
    "qwen3": dict(use_sliding_window=True, sliding_window=6, max_window_layers=0, num_hidden_layers=3),
    "gemma2": dict(num_hidden_layers=3),
    "gemma3_text": dict(),
}
MIXED = ["full_attention", "sliding_attention", "full_attention"]
ATTENTION_BIAS = ("llama", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2", "granite", "smollm3")
MLP_BIAS = ("llama", "granite", "smollm3")
OWN_HEAD_DIM = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "granite", "smollm3")


def rotated_pairs(config):
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(head_dim * config.get("partial_rotary_factor", 1.0)) // 2


def rope(kind, config):
    """Members of the config.json; transformers 4 says the type under `type` or `rope_type`, both are used here."""
    if kind == "default":
        return dict(rope_theta=500.0)
    if kind == "linear":
        # transformers 5 overlooks `type` in gemma3_text, and rotates as if there were no scaling.
        return dict(rope_theta=10000.0, rope_scaling={"rope_type" if config["model_type"] == "gemma3_text" else "type": "linear", "factor": 2.5})
    if kind == "dynamic":
        return dict(rope_theta=100.0, max_position_embeddings=24, rope_scaling={"rope_type": "dynamic", "factor": 4.0})
    if kind == "yarn":
        return dict(rope_theta=500.0, rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL,
                                                    "beta_fast": 4.0, "beta_slow": 0.5})
    if kind == "llama3":
        return dict(rope_theta=500.0, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                    "original_max_position_embeddings": 32})
    assert kind == "longrope", kind
    pairs = rotated_pairs(config)
    scaling = {"type": "longrope", "short_factor": [1.0 + 0.25 * j for j in range(pairs)], "long_factor": [1.0 + 1.5 * j for j in range(pairs)]}
    if config["model_type"] != "phi3":
        scaling.update(rope_type=scaling.pop("type"), original_max_position_embeddings=ORIGINAL)
    return dict(rope_theta=300.0, rope_scaling=scaling)


def cases(families, rope_types):
    """(folder, configuration) of all; `families` and `rope_types` are those that Heddle says it supports."""
    unknown = sorted(set(families) - set(FAMILIES))
    if unknown:
        raise SystemExit("family_cases.py has no case for %s" % ", ".join(unknown))
    for family in families:
        base = dict(FAMILIES[family], model_type=family)
        if family == "gpt2":
            yield from gpt2_cases(base)
            continue
        kinds = [k for k in rope_types if family != "phi3" or k in ("default", "longrope")]
        for i, kind in enumerate(kinds):
            # What is independent of rope changes from one type to the next.
            config = dict(base, tie_word_embeddings=(i % 2 == 1), num_key_value_heads=(2, 4, 1)[i % 3])
            if family in OWN_HEAD_DIM and i % 2 == 0:
                config["head_dim"] = (16, 12)[i % 4 // 2]
            if family in ATTENTION_BIAS and i % 3 == 1:
                config["attention_bias"] = True
            if family in MLP_BIAS and i % 3 == 2:
                config["mlp_bias"] = True
            yield "%s-%s" % (family, kind), {**config, **rope(kind, config)}
        plain = {**base, **rope("default", base)}
        for name, changes in (("window", WINDOW), ("layer_types", LAYER_TYPES)):
            if family in changes:
                yield "%s-%s" % (family, name), {**plain, **changes[family], **(dict(layer_types=MIXED) if name == "layer_types" else {})}
        if family == "llama":
            yield "llama-gelu", dict(plain, hidden_act="gelu", num_key_value_heads=4)
            yield "llama-relu", dict(plain, hidden_act="relu")
        if family == "gemma2":
            yield "gemma2-no_caps", dict(plain, attn_logit_softcapping=None, final_logit_softcapping=None)
        if family == "gemma3_text":
            yield "gemma3_text-caps", dict(plain, final_logit_softcapping=6.0)
        if family == "phi3":
            part = dict(base, num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.5, tie_word_embeddings=True)
            yield "phi3-partial", {**part, **rope("default", part), "sliding_window": 9}
            yield "phi3-partial_longrope", {**part, **rope("longrope", part)}


def gpt2_cases(base):
    yield "gpt2-gelu_new", dict(base, activation_function="gelu_new")
    yield "gpt2-gelu", dict(base, activation_function="gelu", n_inner=40, tie_word_embeddings=False)
    yield "gpt2-inverse_layer", dict(base, activation_function="relu", scale_attn_by_inverse_layer_idx=True)
    yield "gpt2-unscaled", dict(base, scale_attn_weights=False)


def features_of(config):
    """What a configuration exercises, in the words of the table."""
    get = config.get
    found = []
    if get("model_type") == "gpt2":
        found += ["learned positions", "biases"]
        found += ["own scale of attention"] if get("scale_attn_by_inverse_layer_idx") or get("scale_attn_weights") is False else []
    else:
        scaling = get("rope_scaling") or {}
        found.append("rope " + (scaling.get("rope_type") or scaling.get("type") or "default"))
        heads, kv_heads = get("num_attention_heads"), get("num_key_value_heads")
        found.append("grouped heads" if kv_heads < heads else "as many key-value heads")
        if get("head_dim") and get("head_dim") * heads != get("hidden_size"):
            found.append("own head_dim")
        if get("attention_bias") or get("mlp_bias") or get("model_type") == "qwen2":
            found.append("biases")
    tied = get("tie_word_embeddings", get("model_type") == "gpt2")
    found.append("tied head" if tied else "own head")
    has_window = get("sliding_window") and get("use_sliding_window", True)
    if has_window:
        found.append("sliding window")
        if get("layer_types"):
            found.append("layer_types")
        elif get("model_type") in ("qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3"):
            found.append("windows by layer")
    if get("attn_logit_softcapping") or get("final_logit_softcapping"):
        found.append("soft-caps")
    if get("query_pre_attn_scalar") or get("attention_multiplier"):
        found.append("own scale of attention")
    if get("partial_rotary_factor", 1.0) != 1.0:
        found.append("partial rope")
    if get("no_rope_layer_interval"):
        found.append("layers without rope")
    if get("rope_local_base_freq"):
        found.append("local rope")
    if get("embedding_multiplier"):
        found.append("multipliers")
    found.append("activation " + activation_of(config))
    return found


def activation_of(config):
    name = config.get("hidden_activation") or config.get("activation_function") or config.get("hidden_act") or \
        ("gelu_new" if config["model_type"] == "gpt2" else "silu")
    if config["model_type"] == "gemma" and name == "gelu":
        return "gelu (tanh)"
    return {"gelu_new": "gelu (tanh)", "gelu_pytorch_tanh": "gelu (tanh)"}.get(name, name)
