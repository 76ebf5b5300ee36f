#!/usr/bin/env bash
# python_on_gpus.sh [--part NAME]... [PYTHON]: the Python package on this machine's GPUs; two for all of it.
#
#   tests     the tests that need GPUs
#   calls     every operator against plain torch in fp32, SHAPES (200) random shapes in each way, as processes and in
#             one process; 2,000 routings
#   examples  by torchrun
#   deep_ep   farwarp.deep_ep against plain torch, and its times
#   costs     what a call costs the host, twice
#   times     device times from Python beside those of `farwarp bench`
#
# Without --part: all. PYTHON (python3) imports torch, pytest and farwarp: installed, or by PYTHONPATH=python with
# FARWARP_LIBRARY=BUILD/src/farwarp/c/libfarwarp.so and FARWARP_PROGRAM=BUILD/apps/farwarp/farwarp, a build with kernels
# for these GPUs. Without pytest-timeout a test that hangs ends with its step. What the steps print goes to OUT
# (build/python_on_gpus); the last lines here are a table of them, and of what they have measured. The exit status is
# that of the first step that fails, after all have run; a step that takes more than STEP_SECONDS (900) is ended.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
parts=()
while [[ ${1:-} == --part ]]; do
  case ${2:-} in
    tests | calls | examples | deep_ep | costs | times) parts+=("$2") ;;
    *)
      echo "--part is '${2:-}'; allowed: tests, calls, examples, deep_ep, costs, times" >&2
      exit 2
      ;;
  esac
  shift 2
done
if [[ $# -gt 1 || ${1:-} == -* ]]; then
  echo "arguments are '$*'; allowed: [--part NAME]... [PYTHON]" >&2
  exit 2
fi
python=${1:-python3}
shapes=${SHAPES:-200}
most_seconds=${STEP_SECONDS:-900}
out=${OUT:-build/python_on_gpus}
program=${FARWARP_PROGRAM:+--program=$FARWARP_PROGRAM}
status=0
summary=""
figures=()
mkdir -p "$out"

# step PART NAME COMMAND...: what it prints is kept in $out/NAME.log, and of a step that fails its end is shown.
step() {
  local part=$1 name=$2 began=$SECONDS failed=0 verdict=pass
  shift 2
  if [[ ${#parts[@]} -gt 0 && " ${parts[*]} " != *" $part "* ]]; then return; fi
  timeout -k 20 "$most_seconds" "$@" >"$out/$name.log" 2>&1 || failed=$?
  if [[ $failed != 0 ]]; then
    verdict=FAIL
    printf '== %s: status %d\n' "$*" "$failed"
    tail -n 40 "$out/$name.log"
    [[ $status != 0 ]] || status=$failed
  fi
  summary+=$(printf '%-20s %-6s %4d s  %s' "$name" "$verdict" $((SECONDS - began)) \
    "$(tail -n 1 "$out/$name.log" | cut -c1-100)")$'\n'
}

# figures_of PART NAME COMMAND...: a step whose output is shown at the end.
figures_of() {
  step "$@"
  figures+=("$out/$2.log")
}

ranks=("$python" -m torch.distributed.run --nproc-per-node 2)
rm -f "$out"/*.log
"$python" -c 'import farwarp, torch
n = farwarp.device_count("cuda")
print(n, "GPUs:", torch.cuda.get_device_name(), "torch", torch.__version__)
assert n > 0' || exit
figures_of costs costs_1 "$python" tools/python_call_cost.py
figures_of costs costs_2 "$python" tools/python_call_cost.py
figures_of times times "$python" tools/python_device_times.py ${program:+"$program"}
figures_of calls calls_threads "$python" python/tests/random_calls.py --threads 2 --shapes "$shapes"
figures_of calls calls_processes "${ranks[@]}" python/tests/random_calls.py --shapes "$shapes" \
  --compiled $(((shapes + 9) / 10))
step tests test_gpu_bad_input "$python" -B -m pytest -q -rs -p no:cacheprovider python/tests/test_gpu_bad_input.py
step tests test_gpu "$python" -B -m pytest -q -rs -p no:cacheprovider python/tests/test_gpu.py
step tests test_gpu_ops "$python" -B -m pytest -q -rs -p no:cacheprovider python/tests/test_gpu_ops.py
for example in moe_layer tensor_parallel_mlp; do
  step examples "$example" "${ranks[@]}" "examples/python/$example.py" --torch
done
figures_of deep_ep deep_ep "${ranks[@]}" tools/deep_ep_gpus.py
for log in "${figures[@]}"; do
  [[ -f $log ]] && grep -v -i "warning\|^\*\|OMP_NUM_THREADS" "$log" && echo
done
printf '%s' "$summary"
exit "$status"
