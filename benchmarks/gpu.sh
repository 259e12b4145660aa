#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, PyTorch and Triton: the GPU tests, then the benchmark, in under 10 minutes.
#   benchmarks/gpu.sh [--out FOLDER] [--pack FOLDER] [--no-tests] [SECTION ...]     sections: see benchmarks/gpu.py
# Without sections: all but `first`, which takes 8 minutes by itself, with Inductor given models without trivial masks.
# What fails or takes too long does not stop the rest. FOLDER gets gpu-tests.txt, gpu.txt (the table) and gpu.jsonl. Exit status:
# 0, 1 where a test or one of our measurements failed, 2 where nothing could run, 124 where time was up.
# --pack is a folder for a machine that cannot install packages: torch_mlir.tar.xz, MLIR's Python bindings, and wheels.
set -euo pipefail
cd "$(dirname "$0")/.."
out=benchmarks/results pack=.gpu tests=1 sections=()
LIMIT=585  # seconds in all
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift 2 ;;
    --pack) pack=$2; shift 2 ;;
    --no-tests) tests=0; shift ;;
    *) sections+=("$1"); shift ;;
  esac
done
site=${TMPDIR:-/tmp}/mlirc-site
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$site/bytecode}  # a dozen processes import what may lie in a folder of others
unset PYTHONDONTWRITEBYTECODE
if ! python3 -c 'import torch_mlir' 2>/dev/null; then
  [ -s "$pack/torch_mlir.tar.xz" ] || { echo "gpu.sh: no MLIR bindings here: install torch-mlir==20261001, or give --pack FOLDER" >&2; exit 2; }
  mkdir -p "$site" && tar -C "$site" -xJf "$pack/torch_mlir.tar.xz"
  ! ls "$pack"/*.whl >/dev/null 2>&1 || python3 -m pip install -q --no-index --no-deps --target "$site" "$pack"/*.whl
fi
works() { (cd / && python3 -c 'import torch; assert "mlirc" in torch._dynamo.list_backends(()); import mlirc.frontend.entry.backend'); }
works 2>/dev/null || python3 -m pip install -q --no-index --no-deps --no-build-isolation -e .
works || { echo "gpu.sh: the backend does not load" >&2; exit 2; }
mkdir -p "$out"
: >"$out/gpu.txt"
status=0
took() { echo "gpu.sh: $1 with status $2, $SECONDS s from the start"; }
remember() { [ "$1" = 0 ] || [ $status != 0 ] || status=$1; }
if [ $tests = 1 ]; then
  workers=()
  python3 -c 'import xdist' 2>/dev/null && workers=(-n 8 --dist worksteal)
  ended=0
  timeout -k 5 200 python3 -m pytest -q -p no:cacheprovider "${workers[@]}" tests/gpu >"$out/gpu-tests.txt" 2>&1 || ended=$?
  tail -n 40 "$out/gpu-tests.txt"
  took tests $ended
  remember $ended
fi
measure() {
  local left=$((LIMIT - SECONDS)) ended=0
  [ $left -gt 10 ] || { echo "gpu.sh: no time left for $*"; remember 124; return; }
  timeout -k 5 $left python3 -W ignore -m benchmarks.gpu --out "$out" "$@" | tee -a "$out/gpu.txt" || ended=$?
  took "$*" $ended
  remember $ended
}
case ${sections[*]-} in
  none) ;;
  "")
    measure --no-inductor launch kernels
    measure --no-masked inference
    measure --no-masked training
    measure --no-masked --models bert,resnet50 latency
    ;;
  *) measure "${sections[@]}" ;;
esac
exit $status
