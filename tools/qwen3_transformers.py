#!/usr/bin/env python3
"""Compares the logits of `farwarp decode` with those of Hugging Face transformers.

    qwen3_transformers.py FARWARP [--model DIR | sizes of a random model] [--positions 48] [--sequences 3]
        [--prompt FILE]

FARWARP is the program. Needs PyTorch and transformers 5 (pip install torch transformers). Without --model, transformers
makes a Qwen3 with random bf16 weights and saves it (--keep DIR: there), in several files if it is large.

Three runs get the same token ids, one sequence at a time by transformers, all together by farwarp: transformers in fp32
with the bf16 weights ("exact"), transformers in bf16, and farwarp. Logits at position i are of the inputs 0 to i, at
all positions of all sequences. transformers runs on a CUDA GPU if there is one, else on the CPU. Criteria:

1. The largest error of farwarp's logits against exact is at most 1.5 times that of transformers' bf16 run.
2. At 90% of the positions at least, the two best exact logits are farther apart than farwarp's largest error
   ("decided").
3. At each of these, farwarp's best token is the exact one.

Also told, and no criterion: how fast farwarp loads the model, and how fast one thread reads the same files with read()
afterwards. Both times they lie in the page cache, if it has room for them.

Exit status: 0; 1 if a criterion is not met, or farwarp fails; 2 for bad usage; 3 without PyTorch and transformers.
"""

import argparse
import gc
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time

MOST_RATIO = 1.5
LEAST_DECIDED = 0.9
MOST_SEQUENCES = 8
CONFIG = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
)
SIZES = {
    "hidden": 256,
    "layers": 3,
    "query_heads": 8,
    "kv_heads": 2,
    "head_dim": 64,
    "intermediate": 768,
    "vocabulary": 1003,
}


def fail(message: str, code: int = 2) -> None:
    print(f"qwen3_transformers.py: {message}", file=sys.stderr)
    sys.exit(code)


def make_model(torch, transformers, arguments, folder: str, device: str) -> None:
    """Products have outputs of about the size of their inputs.

    A token's row of the head is like the embedding of a token (its own, if tied), so that a best logit stands out, as
    in a trained model. The more layers, the less it does: --branch makes all that they add smaller.
    """
    config = transformers.Qwen3Config(
        hidden_size=arguments.hidden,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.query_heads,
        num_key_value_heads=arguments.kv_heads,
        head_dim=arguments.head_dim,
        intermediate_size=arguments.intermediate,
        vocab_size=arguments.vocabulary,
        tie_word_embeddings=arguments.tied,
    )
    with torch.device(device):
        model = transformers.Qwen3ForCausalLM(config)
    generator = torch.Generator(device).manual_seed(arguments.seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            numbers = torch.randn(tensor.shape, generator=generator, device=device)
            if tensor.dim() == 1:
                tensor.copy_(1 + 0.2 * numbers)
            elif "embed_tokens" in name:
                tensor.copy_(0.4 * numbers)
            else:
                adds = "o_proj" in name or "down_proj" in name
                tensor.copy_(numbers * (arguments.branch if adds else 1) / math.sqrt(tensor.shape[1]))
        if not arguments.tied:
            model.lm_head.weight.add_(model.model.embed_tokens.weight.roll(1, dims=0))
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="4GB")


def read_prompts(arguments, vocabulary: int) -> list:
    """Token ids of each sequence. Random ones have different lengths."""
    if arguments.prompt:
        try:
            lines = pathlib.Path(arguments.prompt).read_text().splitlines()
            prompts = [[int(word) for word in line.replace(",", " ").split()] for line in lines if line.strip()]
        except (OSError, ValueError) as error:
            fail(f"--prompt is '{arguments.prompt}': {error}")
        if not 1 <= len(prompts) <= MOST_SEQUENCES or any(
            not 0 <= token < vocabulary for ids in prompts for token in ids
        ):
            fail(
                f"--prompt is '{arguments.prompt}': allowed are 1 to {MOST_SEQUENCES} lines of ids "
                f"of 0 to {vocabulary - 1}"
            )
        return prompts
    generator = random.Random(arguments.seed)
    lengths = [max(1, arguments.positions - 5 * i) for i in range(arguments.sequences)]
    return [[generator.randrange(vocabulary) for _ in range(length)] for length in lengths]


def transformers_logits(torch, transformers, folder: str, dtype, device: str, prompts: list) -> list:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    with torch.no_grad():
        logits = [model(torch.tensor([ids], device=device)).logits[0].float().cpu() for ids in prompts]
    del model
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()  # the next run needs the memory
    return logits


def read_rate(files: list) -> float:
    """Bytes a second of one thread."""
    buffer = bytearray(16 << 20)
    begin, size = time.perf_counter(), 0
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while (count := file.readinto(buffer)) > 0:
                size += count
    return size / (time.perf_counter() - begin)


def farwarp_logits(numpy, torch, arguments, folder: str, target: str, prompts: list) -> list:
    """Also checks that the token chosen after each prompt is the best of its last position."""
    with tempfile.TemporaryDirectory() as work:
        ids, npy = pathlib.Path(work, "prompts.txt"), pathlib.Path(work, "logits.npy")
        ids.write_text("".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts))
        command = [
            arguments.farwarp,
            "decode",
            "--model",
            folder,
            "--prompt",
            str(ids),
            "--tokens",
            "1",
            "--target",
            target,
            "--dispatcher",
            arguments.dispatcher,
            "--logits",
            str(npy),
            "--json",
            "-",
        ]
        try:
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        except OSError as error:
            fail(f"FARWARP is '{arguments.farwarp}': {error}")
        if run.returncode != 0:
            fail(f"farwarp decode failed with exit status {run.returncode}", 1)
        result, all_logits = json.loads(run.stdout), torch.from_numpy(numpy.load(npy))
    files = sorted(pathlib.Path(folder).glob("*.safetensors"))
    rate, reading = sum(path.stat().st_size for path in files) / result["load_seconds"], read_rate(files)
    print(f"farwarp: {result['device']}, {1e3 * result['seconds_per_step']:.3f} ms for each position")
    print(
        f"loading: {len(files)} files in {result['load_seconds']:.2f} s, opening of the World included: "
        f"{1e-9 * rate:.2f} GB/s, "
        f"{rate / reading:.2f} of one thread's read(), {1e-9 * reading:.2f} GB/s"
    )
    logits = [all_logits[: len(prompt), i] for i, prompt in enumerate(prompts)]
    for i, sequence in enumerate(result["sequences"]):
        if sequence["tokens"] != [int(logits[i][-1].argmax())]:
            fail(
                f"sequence {i}: farwarp's token is {sequence['tokens']}, "
                f"its best logit has {int(logits[i][-1].argmax())}",
                1,
            )
    return logits


def compare(torch, exact: list, rounded: list, ours: list) -> bool:
    """Prints errors and positions; whether all criteria are met."""
    exact, rounded, ours = (torch.cat(logits).double() for logits in (exact, rounded, ours))
    if not torch.isfinite(ours).all():
        print("farwarp has logits that are no numbers")
        return False

    def error_of(logits) -> tuple:
        difference = logits - exact
        return float(difference.abs().max()), float(difference.norm() / exact.norm())

    (largest, relative), (largest_bf16, relative_bf16) = error_of(ours), error_of(rounded)
    two = exact.topk(2, dim=1)
    decided = two.values[:, 0] - two.values[:, 1] > largest
    same = ours.argmax(dim=1) == two.indices[:, 0]
    share, wrong = float(decided.double().mean()), int((decided & ~same).sum())
    ratio = largest / largest_bf16 if largest_bf16 > 0 else math.inf
    print(
        f"exact logits: standard deviation {float(exact.std()):.3f}, "
        f"best logit {float(two.values[:, 0].mean()):.3f} on average"
    )
    print(
        f"largest error: farwarp {largest:.4f}, transformers bf16 {largest_bf16:.4f}, "
        f"ratio {ratio:.2f} (allowed: {MOST_RATIO})"
    )
    print(
        f"error / norm: farwarp {relative:.5f}, transformers bf16 {relative_bf16:.5f}, "
        f"ratio {relative / relative_bf16:.2f}"
    )
    print(
        f"decided positions: {int(decided.sum())} of {len(decided)}, {100 * share:.1f}% "
        f"(needed: {100 * LEAST_DECIDED:.0f}%)"
    )
    print(
        f"greedy choices: {wrong} wrong at decided positions (allowed: 0), {int((~same).sum())} differ at all; "
        f"{len(set(two.indices[:, 0].tolist()))} different tokens"
    )
    return ratio <= MOST_RATIO and share >= LEAST_DECIDED and wrong == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("farwarp", metavar="FARWARP")
    parser.add_argument("--model", metavar="DIR", help="an existing model, instead of a random one")
    parser.add_argument("--keep", metavar="DIR", help="save the random model here")
    for name, size in SIZES.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=size, help=f"of a random model ({size})")
    parser.add_argument("--tied", action="store_true", help="of a random model: the head is the embedding")
    parser.add_argument(
        "--branch",
        type=float,
        default=1,
        metavar="SCALE",
        help="of a random model: of the weights of attention's output and of down (1); "
        "0.6 for 36 layers of 4096, 0.35 for 28 of 1024",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--positions", type=int, default=48, help="of the longest sequence (48)")
    parser.add_argument("--sequences", type=int, default=3, help=f"1..{MOST_SEQUENCES} (3)")
    parser.add_argument("--prompt", metavar="FILE", help="token ids, a sequence on each line, instead of random ones")
    parser.add_argument("--target", help="of farwarp (cuda if PyTorch has a GPU, else emu_sm90)")
    parser.add_argument("--dispatcher", default="static")
    arguments = parser.parse_args()
    for name in (*SIZES, "positions", "sequences"):
        if getattr(arguments, name) < 1:
            fail(f"--{name.replace('_', '-')} is {getattr(arguments, name)}; allowed is 1 or more")
    if not 0 < arguments.branch <= 1:
        fail(f"--branch is {arguments.branch}; allowed is more than 0, up to 1")
    if arguments.sequences > MOST_SEQUENCES:
        fail(f"--sequences is {arguments.sequences}; allowed is 1 to {MOST_SEQUENCES}")
    if arguments.model and arguments.keep:
        fail("--keep is of a random model: allowed without --model")
    try:
        import numpy
        import torch
        import transformers
    except ImportError as error:
        fail(f"a package is missing: {error}", 3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    target = arguments.target or ("cuda" if device == "cuda" else "emu_sm90")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.model or arguments.keep or temporary
        if not arguments.model:
            make_model(torch, transformers, arguments, folder, device)
            if device == "cuda":
                torch.cuda.empty_cache()
        try:
            config = json.loads(pathlib.Path(folder, "config.json").read_text())
        except (OSError, ValueError) as error:
            fail(f"--model is '{folder}': {error}")
        missing = [name for name in CONFIG if name not in config]
        if missing:
            fail(f"--model is '{folder}': config.json has no {', '.join(missing)}")
        prompts = read_prompts(arguments, config["vocab_size"])
        print(
            f"{arguments.model or 'random'}: hidden {config['hidden_size']}, {config['num_hidden_layers']} layers, "
            f"{config['num_attention_heads']}/{config['num_key_value_heads']} heads of {config['head_dim']}, "
            "vocabulary "
            f"{config['vocab_size']}, {'tied' if config['tie_word_embeddings'] else 'untied'}; sequences of "
            f"{', '.join(str(len(ids)) for ids in prompts)} positions"
        )
        name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {name}")
        exact = transformers_logits(torch, transformers, folder, torch.float32, device, prompts)
        rounded = transformers_logits(torch, transformers, folder, torch.bfloat16, device, prompts)
        ours = farwarp_logits(numpy, torch, arguments, folder, target, prompts)
    passed = compare(torch, exact, rounded, ours)
    print("passed" if passed else "FAILED")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
