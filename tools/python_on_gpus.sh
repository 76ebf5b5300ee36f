#!/usr/bin/env bash
# python_on_gpus.sh [PYTHON]: the Python package on this machine's GPUs: its tests there (two GPUs for all of them), the examples by torchrun,
# farwarp.deep_ep, and what a call costs the host. PYTHON (python3) imports torch, pytest and farwarp: installed, or by PYTHONPATH=python with
# FARWARP_LIBRARY=BUILD/src/farwarp/c/libfarwarp.so, a build with kernels for these GPUs. The exit status is that of the first step that fails, after
# all have run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
python=${1:-python3}
status=0

step() {
  printf '\n== %s\n' "$*"
  "$@" || { local failed=$?; if [[ $status == 0 ]]; then status=$failed; fi; }
}

step "$python" -c 'import farwarp, torch; n = farwarp.device_count("cuda"); print(n, "GPUs, torch", torch.__version__); assert n > 0'
step "$python" -B -m pytest -q -rs -p no:cacheprovider python/tests/test_gpu.py python/tests/test_gpu_ops.py
for example in moe_layer tensor_parallel_mlp; do
  step "$python" -m torch.distributed.run --nproc-per-node 2 "examples/python/$example.py" --torch
done
step "$python" -m torch.distributed.run --nproc-per-node 2 tools/deep_ep_gpus.py
step "$python" tools/python_call_cost.py --calls 200
exit "$status"
