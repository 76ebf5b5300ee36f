"""A tiny Qwen3 in a folder as Hugging Face saves it, and its logits in float64."""

import json
import pathlib

import ml_dtypes
import numpy as np

from oracle import f64, softmax_attention

HIDDEN, LAYERS, HEADS, KV_HEADS, DIM, INTERMEDIATE, VOCABULARY = 256, 2, 4, 1, 64, 256, 40
EPS, THETA = 1e-6, 1e6
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "intermediate_size": INTERMEDIATE,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}


def weights():
    rng = np.random.default_rng(5)

    def matrix(rows, columns, scale=None):
        return (rng.standard_normal((rows, columns)) * (columns**-0.5 if scale is None else scale)).astype(
            ml_dtypes.bfloat16
        )

    def norm(size):
        return (1 + 0.2 * rng.standard_normal(size)).astype(ml_dtypes.bfloat16)

    all_weights = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN, 1), "model.norm.weight": norm(HIDDEN)}
    all_weights["lm_head.weight"] = matrix(VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        all_weights |= {
            of + "input_layernorm.weight": norm(HIDDEN),
            of + "post_attention_layernorm.weight": norm(HIDDEN),
            of + "self_attn.q_proj.weight": matrix(HEADS * DIM, HIDDEN),
            of + "self_attn.k_proj.weight": matrix(KV_HEADS * DIM, HIDDEN),
            of + "self_attn.v_proj.weight": matrix(KV_HEADS * DIM, HIDDEN),
            of + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * DIM),
            of + "self_attn.q_norm.weight": norm(DIM),
            of + "self_attn.k_norm.weight": norm(DIM),
            of + "mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            of + "mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            of + "mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
        }
    return all_weights


def large_logits(below, far):
    """Weights that decode the token whose keys have most of the probability.

    Logits are 2^24 in fp32, where neighbours are 1 apart; those of token `below` are one less, those of token `far`
    negligible.
    """
    tensors = {name: np.zeros_like(matrix) for name, matrix in weights().items()}
    for name, matrix in tensors.items():
        if name.endswith("norm.weight"):
            matrix[:] = 1
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    of = "model.layers.0.self_attn."
    q, k, v, out = (tensors[of + f"{name}_proj.weight"] for name in "qkvo")
    slow, constant = (DIM // 2 - 1, DIM // 2 - 2), HIDDEN - 1  # dims that a large rope_theta does not rotate
    embedding[:, constant] = 1
    q[slow, constant] = k[slow[0], constant] = 1
    q[slow[1], constant] = 2.0**-6
    for token in range(VOCABULARY):
        embedding[token, token] = v[token, token] = 1
        out[100 + token, token] = head[token, 100 + token] = 4
    k[slow[1], below], k[slow[1], far] = -(2.0**-6), -1
    for i, (of_q, of_k) in enumerate(((2.0**11, 2.0**10), (2.0**5, 2.0**4))):
        tensors[of + "q_norm.weight"][slow[i]], tensors[of + "k_norm.weight"][slow[i]] = of_q, of_k
    return tensors


def save(folder, tensors=None, **config):
    """config.json and model.safetensors."""
    folder = pathlib.Path(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    header, data = {}, b""
    for name, matrix in (tensors or weights()).items():
        header[name] = {
            "dtype": "BF16",
            "shape": list(matrix.shape),
            "data_offsets": [len(data), len(data) + matrix.nbytes],
        }
        data += matrix.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def rms(x, weight):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS) * f64(weight)


def rotated(x):
    """x [positions, heads, DIM]."""
    angles = np.arange(len(x))[:, None] / THETA ** (np.arange(DIM // 2) * 2 / DIM)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = x[..., : DIM // 2], x[..., DIM // 2 :]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def logits(tokens):
    """[positions, vocabulary]."""
    w = {name: f64(matrix) for name, matrix in weights().items()}
    x = w["model.embed_tokens.weight"][tokens]
    count = len(tokens)
    visible = np.tril(np.ones((count, count), bool))
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        h = rms(x, w[of + "input_layernorm.weight"])
        q, k, v = ((h @ w[of + f"self_attn.{name}_proj.weight"].T).reshape(count, -1, DIM) for name in "qkv")
        q, k = rotated(rms(q, w[of + "self_attn.q_norm.weight"])), rotated(rms(k, w[of + "self_attn.k_norm.weight"]))
        attended = [
            softmax_attention(q[:, i], k[:, i * KV_HEADS // HEADS], v[:, i * KV_HEADS // HEADS], visible)[0]
            for i in range(HEADS)
        ]
        x = x + np.concatenate(attended, axis=1) @ w[of + "self_attn.o_proj.weight"].T
        h = rms(x, w[of + "post_attention_layernorm.weight"])
        gate = h @ w[of + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[of + "mlp.up_proj.weight"].T)) @ w[of + "mlp.down_proj.weight"].T
    return rms(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
