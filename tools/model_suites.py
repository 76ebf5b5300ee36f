#!/usr/bin/env python3
"""Writes suites/serving.json, tp.json and moe.json: what models ask of our operators, by published configurations.

    tools/model_suites.py [--check]

With --check it compares the files with what it would write, and exits 1 if they differ.

serving. Prefill: 4096 tokens of all ranks (moe-a2a: of each rank), attention of one sequence of 8192. Decode: 64
sequences (moe-a2a: 128 tokens of each rank), caches of 8192 keys. Left out: the latent attention of DeepSeek-V3 and
Kimi-K2, whose heads are longer than 128.

tp. The products of dense layers at many numbers of rows: spread over ranks, and one rank's part alone (gemm). Rows that
the ranks do not divide are left to gemm-ar, which has at most 512.

moe. The routed experts of MoE layers, over 1, 2 and 8 ranks, at many numbers of tokens of each rank; and with skewed
routing.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

RANKS = (2, 4, 8)
PREFILL_TOKENS, DECODE_TOKENS, EXPERT_TOKENS = 4096, 64, 128
MOE_RANKS = (1, 2, 8)
MOE_TOKENS, SKEWED_TOKENS = (1, 8, 32, 128, 1024, 4096), (128, 4096)
ROWS = (1, 16, 64, 128, 256, 300, 512, 1024, 2048, 4096, 8192)  # of tp
MOST_ROWS_TO_ALL = 512
SEQUENCE, CACHE, BATCH, PAGE = 8192, 8192, 64, 64


@dataclass(frozen=True)
class Model:
    """What its config.json says. `dense` is the intermediate size of layers without experts, or 0."""

    name: str
    source: str
    hidden: int
    heads: int
    kv_heads: int  # 0: latent attention
    head_dim: int  # of v
    dense: int
    bias: bool = False  # of q, k, v and o
    window: int = 0  # of every other layer, whose heads have sinks
    experts: int = 0
    top: int = 0
    expert_size: int = 0  # intermediate size of a routed expert
    shared: int = 0  # intermediate size of the shared expert
    clamped: bool = False  # experts have gpt-oss's activation
    expert_bias: bool = False
    fp8: bool = False  # weights are published in fp8, and activations are dispatched so


MODELS = (
    Model(
        "DeepSeek-V3",
        "https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json: hidden_size 7168, num_attention_heads "
        "128, v_head_dim 128, intermediate_size 18432, moe_intermediate_size 2048, n_routed_experts 256, "
        "num_experts_per_tok 8, n_shared_experts 1, fp8 weights",
        *(7168, 128, 0, 128, 18432),
        experts=256,
        top=8,
        expert_size=2048,
        fp8=True,
    ),
    Model(
        "Kimi-K2",
        "https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/config.json: hidden_size 7168, "
        "num_attention_heads 64, v_head_dim 128, moe_intermediate_size 2048, n_routed_experts 384, "
        "num_experts_per_tok 8, n_shared_experts 1, fp8 weights",
        *(7168, 64, 0, 128, 0),
        experts=384,
        top=8,
        expert_size=2048,
        shared=2048,
        fp8=True,
    ),
    Model(
        "Qwen3-235B-A22B",
        "https://huggingface.co/Qwen/Qwen3-235B-A22B/blob/main/config.json: hidden_size 4096, num_attention_heads 64, "
        "num_key_value_heads 4, head_dim 128, num_experts 128, num_experts_per_tok 8, moe_intermediate_size 1536",
        *(4096, 64, 4, 128, 0),
        experts=128,
        top=8,
        expert_size=1536,
    ),
    Model(
        "Qwen3-32B",
        "https://huggingface.co/Qwen/Qwen3-32B/blob/main/config.json: hidden_size 5120, num_attention_heads 64, "
        "num_key_value_heads 8, head_dim 128, intermediate_size 25600",
        *(5120, 64, 8, 128, 25600),
    ),
    Model(
        "Llama-3.3-70B",
        "https://huggingface.co/meta-llama/Llama-3.3-70B-Instruct/blob/main/config.json: hidden_size 8192, "
        "num_attention_heads 64, num_key_value_heads 8, head_dim 128, intermediate_size 28672",
        *(8192, 64, 8, 128, 28672),
    ),
    Model(
        "gpt-oss-120b",
        "https://huggingface.co/openai/gpt-oss-120b/blob/main/config.json: hidden_size 2880, num_attention_heads 64, "
        "num_key_value_heads 8, head_dim 64, attention_bias, sliding_window 128, num_local_experts 128, "
        "num_experts_per_tok 4, intermediate_size 2880",
        *(2880, 64, 8, 64, 0),
        bias=True,
        window=128,
        experts=128,
        top=4,
        expert_size=2880,
        clamped=True,
        expert_bias=True,
    ),
)

QWEN3_8B = Model(
    "Qwen3-8B",
    "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json: hidden_size 4096, num_attention_heads 32, "
    "num_key_value_heads 8, head_dim 128, intermediate_size 12288",
    *(4096, 32, 8, 128, 12288),
)
DENSE_MODELS = (
    *(model for model in MODELS if model.name in ("Llama-3.3-70B", "Qwen3-32B", "gpt-oss-120b", "DeepSeek-V3")),
    QWEN3_8B,
)
MOE_MODELS = (
    *(model for model in MODELS if model.experts),
    Model(
        "Qwen3-30B-A3B",
        "https://huggingface.co/Qwen/Qwen3-30B-A3B/blob/main/config.json: hidden_size 2048, num_experts 128, "
        "num_experts_per_tok 8, moe_intermediate_size 768",
        *(2048, 32, 4, 128, 0),
        experts=128,
        top=8,
        expert_size=768,
    ),
    Model(
        "GLM-4.6",
        "https://huggingface.co/zai-org/GLM-4.6/blob/main/config.json: hidden_size 5120, n_routed_experts 160, "
        "num_experts_per_tok 8, moe_intermediate_size 1536",
        *(5120, 96, 8, 128, 0),
        experts=160,
        top=8,
        expert_size=1536,
    ),
)


def ups(model, ranks):
    """Products whose weights are split by rows: (about, n, k, bias)."""
    if model.kv_heads:  # with fewer KV heads than ranks, each rank has one
        heads = model.heads + 2 * max(model.kv_heads, ranks)
        yield "q, k and v", heads * model.head_dim, model.hidden, model.bias
    if model.dense:
        yield "gate and up", 2 * model.dense, model.hidden, False
    if model.shared:
        yield "gate and up of the shared expert", 2 * model.shared, model.hidden, False


def downs(model):
    """Products whose weights are split by columns."""
    yield "o", model.hidden, model.heads * model.head_dim, model.bias
    if model.dense:
        yield "down", model.hidden, model.dense, False
    if model.shared:
        yield "down of the shared expert", model.hidden, model.shared, False


def product(rows, about, n, k, bias):
    return {"m": rows, "n": n, "k": k, "has_bias": bias, "about": about}


def prefill_attention(model, ranks, window):
    return {
        "batch": 1,
        "heads": model.heads // ranks,
        "kv_heads": max(model.kv_heads // ranks, 1),
        "head_dim": model.head_dim,
        "queries": SEQUENCE,
        "keys": SEQUENCE,
        "causal": True,
        "window_left": str(window - 1) if window else "-1",  # a suite has no negative numbers
        "sinks": model.window > 0,
        "about": "prefill, sliding window" if window else "prefill",
    }


def decode_attention(model, ranks, window):
    return {
        "batch": BATCH,
        "query_heads": model.heads // ranks,
        "kv_heads": max(model.kv_heads // ranks, 1),
        "head_dim": model.head_dim,
        "page_size": PAGE,
        "max_keys": CACHE,
        "window": window,
        "sinks": model.window > 0,
        "lengths": "full",
        "about": "decode, sliding window" if window else "decode",
    }


def cases_of(model, ranks):
    """(operator, case) of one model on so many ranks."""
    for up in ups(model, ranks):
        yield "ag-gemm", product(PREFILL_TOKENS, f"prefill, {up[0]}", *up[1:])
    for down in downs(model):
        yield "gemm-rs", product(PREFILL_TOKENS, f"prefill, {down[0]}", *down[1:])
        yield "gemm-ar", product(DECODE_TOKENS, f"decode, {down[0]}", *down[1:])
    for about, tokens in (("prefill", PREFILL_TOKENS), ("decode", DECODE_TOKENS)):
        yield "all-reduce", {"elements": tokens * model.hidden, "about": about}
    if model.kv_heads:
        for window in (0, model.window) if model.window else (0,):
            yield "attention", prefill_attention(model, ranks, window)
            yield "flash-decode", decode_attention(model, ranks, window)
    if model.experts:
        for about, tokens in (("prefill", PREFILL_TOKENS), ("decode", EXPERT_TOKENS)):
            yield (
                "moe-a2a",
                {
                    "num_experts": model.experts,
                    "experts_per_token": model.top,
                    "hidden_dim": model.hidden,
                    "max_num_tokens": tokens,
                    "dispatch_dtype": "fp8" if model.fp8 else "same",
                    "about": about,
                },
            )


def dense_cases_of(model, ranks):
    """The same of suite tp."""
    for rows in ROWS:
        for about, n, k, bias in ups(model, ranks):
            if rows % ranks == 0:
                yield "ag-gemm", product(rows, about, n, k, bias)
            yield "gemm", product(rows, f"{about}, a rank's part", n // ranks, k, bias)
        for about, n, k, bias in downs(model):
            if rows % ranks == 0:
                yield "gemm-rs", product(rows, about, n, k, bias)
            if rows <= MOST_ROWS_TO_ALL:
                yield "gemm-ar", product(rows, about, n, k, bias)
            yield "gemm", product(rows, f"{about}, a rank's part", n, k // ranks, bias)


def moe_cases_of(model, ranks):
    """The same of suite moe."""
    for routing, numbers in (("uniform", MOE_TOKENS), ("zipf", SKEWED_TOKENS)):
        for tokens in numbers:
            yield (
                "moe-layer",
                {
                    "num_experts": model.experts,
                    "experts_per_token": model.top,
                    "hidden_dim": model.hidden,
                    "intermediate": model.expert_size,
                    "max_num_tokens": tokens,
                    "activation": "clamped_swiglu" if model.clamped else "swiglu",
                    "has_bias": model.expert_bias,
                    "routing": routing,
                    "about": "skewed" if routing == "zipf" else "uniform",
                },
            )


def suite_text(name, title, models, cases, all_ranks=RANKS):
    ops = {}
    for model in models:
        for ranks in all_ranks:
            for op, case in cases(model, ranks):
                about = case.pop("about")
                entries = ops.setdefault(op, [])
                entries.append({**case, "ranks": 1 if op == "gemm" else ranks, "source": model.name, "about": about})
                entries[-1]["seed"] = len(entries)
    lines = [
        "{",
        f' "name": "{name}",',
        f' "title": "{title} (written by tools/model_suites.py)",',
        ' "source": "the configurations that the models are published with",',
        ' "ranks": 8,',
        ' "sources": {',
        ",\n".join(f"  {json.dumps(model.name)}: {json.dumps(model.source)}" for model in models),
        " },",
        ' "ops": {',
    ]
    texts = []
    for op, entries in sorted(ops.items()):
        cases_text = ",\n".join("    " + json.dumps(entry) for entry in entries)
        texts.append(f'  "{op}": {{\n   "dtype": "bf16",\n   "benchmarks": [\n{cases_text}\n   ]\n  }}')
    return "\n".join(lines) + "\n" + ",\n".join(texts) + "\n }\n}\n"


def suites():
    """{name: text}."""
    over = "over 2, 4 and 8 ranks"
    return {
        "serving": suite_text(
            "serving", f"Prefill and decode of current models, tensor or expert parallel {over}", MODELS, cases_of
        ),
        "moe": suite_text(
            "moe", "Routed experts of MoE layers over 1, 2 and 8 ranks", MOE_MODELS, moe_cases_of, MOE_RANKS
        ),
        "tp": suite_text("tp", f"Products of dense layers, tensor parallel {over}", DENSE_MODELS, dense_cases_of),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    old = []
    for name, text in suites().items():
        file = Path(__file__).parent.parent / "suites" / f"{name}.json"
        if not options.check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            old.append(file)
    for file in old:
        print(f"{file} is not what tools/model_suites.py writes", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
