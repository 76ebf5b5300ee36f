#!/usr/bin/env python3
"""Times of a Qwen3 token with PyTorch on one GPU, for comparison with `farwarp bench qwen3`.

    qwen3_pytorch.py [--model 8b] [--batch 1,8] [--context 512] [--compile]

Always: a token's matrix products alone, by cuBLAS, in one CUDA graph: q, k, v together, gate and up together. Weights are read once for each token, so
they are not in L2. With --compile: transformers' Qwen3, random weights, a static cache, its decoding step compiled by torch.compile.
Medians of 30 replays; of 5 calls with --compile, in which a token's time is the difference of two lengths.
"""
import argparse
import statistics
import time

SIZES = {  # hidden, layers, query heads, KV heads, intermediate
    "0.6b": (1024, 28, 16, 8, 3072), "4b": (2560, 36, 32, 8, 9728), "8b": (4096, 36, 32, 8, 12288), "14b": (5120, 40, 40, 8, 17408)}
HEAD_DIM, VOCABULARY = 128, 151936


def products(torch, sizes, batch: int) -> float:
    hidden, layers, heads, kv_heads, intermediate = sizes
    shapes = [((heads + 2 * kv_heads) * HEAD_DIM, hidden), (hidden, heads * HEAD_DIM), (2 * intermediate, hidden), (hidden, intermediate)] * layers
    weights = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes + [(VOCABULARY, hidden)]]
    inputs = {columns: torch.randn(batch, columns, device="cuda", dtype=torch.bfloat16) for columns in {shape[1] for shape in shapes}}

    def token():
        for matrix in weights:
            torch.nn.functional.linear(inputs[matrix.shape[1]], matrix)
    token()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token()
    times = []
    for _ in range(33):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return statistics.median(times[3:])


def compiled(torch, sizes, batch: int, context: int) -> float:
    import transformers
    hidden, layers, heads, kv_heads, intermediate = sizes
    config = transformers.Qwen3Config(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                                      head_dim=HEAD_DIM, intermediate_size=intermediate, vocab_size=VOCABULARY, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.Qwen3ForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    ids = torch.randint(VOCABULARY, (batch, context), device="cuda")

    def generate(tokens: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.no_grad():
            model.generate(ids, attention_mask=torch.ones_like(ids), cache_implementation="static", do_sample=False, min_new_tokens=tokens,
                           max_new_tokens=tokens, pad_token_id=0)
        torch.cuda.synchronize()
        return time.perf_counter() - begin
    few, many = 16, 80
    for tokens in (few, many, few, many):
        generate(tokens)
    return statistics.median((generate(many) - generate(few)) / (many - few) for _ in range(5)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="8b")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--context", type=int, default=512, help="of --compile")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    import torch
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Qwen3-{arguments.model}; us of a token")
    for batch in map(int, arguments.batch.split(",")):
        line = f"{batch} sequences: products alone {products(torch, SIZES[arguments.model], batch):.0f}"
        torch.cuda.empty_cache()
        if arguments.compile:
            line += f", torch.compile at context {arguments.context} {compiled(torch, SIZES[arguments.model], batch, arguments.context):.0f}"
            torch.cuda.empty_cache()
        print(line, flush=True)


if __name__ == "__main__":
    main()
