"""What is measured: models from scratch as Hugging Face configs, and rows of random ids that every program trains on."""
import json
import random

SEQUENCE = 256

COMMON_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                "tie_word_embeddings": True, "attention_dropout": 0.0, "attention_bias": False, "mlp_bias": False, "initializer_range": 0.02,
                "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}

# Dropout is 0 everywhere: its random numbers would measure the generator.
WORKLOADS = {
    "gpt2-124m": {
        "title": "GPT-2 124M", "rows": 4,
        "config": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
                   "n_head": 12, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                   "attn_pdrop": 0.0, "initializer_range": 0.02, "bos_token_id": 50256, "eos_token_id": 50256, "torch_dtype": "float32"}},
    "llama-15m": {
        "title": "Llama 15M", "rows": 8,
        "config": {**COMMON_LLAMA, "vocab_size": 32000, "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6,
                   "num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 256}},
    "smollm2-135m": {
        "title": "SmolLM2-135M shape", "rows": 4,
        "config": {**COMMON_LLAMA, "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                   "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 2048}},
}

# One recipe for all: AdamW with decay on matrices only, and the gradients clipped by their global norm.
RECIPE = {"learning_rate": 1e-4, "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-8, "max_grad_norm": 1.0}


def write_workload(workload, steps, config_path, rows_path):
    """The config, and `steps` batches of rows of SEQUENCE + 1 ids (SEQUENCE inputs and their targets)."""
    with open(config_path, "w") as f:
        json.dump(workload["config"], f)
    r = random.Random(1)
    vocabulary = workload["config"]["vocab_size"]
    with open(rows_path, "w") as f:
        for _ in range(steps * workload["rows"]):
            f.write(json.dumps({"input_ids": [r.randrange(vocabulary) for _ in range(SEQUENCE + 1)]}) + "\n")
