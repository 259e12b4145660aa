#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, PyTorch and Triton: the GPU tests, then the benchmark, in under 10 minutes.
#   benchmarks/gpu.sh [--out FOLDER] [--pack FOLDER] [--no-tests] [SECTION ...]     sections: see benchmarks/gpu.py
# Without sections: all but `first`, which takes 8 minutes by itself, with Inductor given models without trivial masks.
# --pack is a folder for a machine that cannot install packages: torch_mlir.tar.xz, MLIR's Python bindings, and wheels.
set -euo pipefail
cd "$(dirname "$0")/.."
out=benchmarks/results pack=.gpu tests=1 sections=()
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
if ! python3 -c 'import torch_mlir' 2>/dev/null; then
  [ -s "$pack/torch_mlir.tar.xz" ] || { echo "gpu.sh: no MLIR bindings here: install torch-mlir==20261001, or give --pack FOLDER" >&2; exit 2; }
  mkdir -p "$site" && tar -C "$site" -xJf "$pack/torch_mlir.tar.xz"
  ! ls "$pack"/*.whl >/dev/null 2>&1 || python3 -m pip install -q --no-index --no-deps --target "$site" "$pack"/*.whl
fi
works() { (cd / && python3 -c 'import torch; assert "mlirc" in torch._dynamo.list_backends(()); import mlirc.frontend.backend'); }
works 2>/dev/null || python3 -m pip install -q --no-index --no-deps --no-build-isolation -e .
works || { echo "gpu.sh: the backend does not load" >&2; exit 2; }
mkdir -p "$out"
if [ $tests = 1 ]; then
  workers=()
  python3 -c 'import xdist' 2>/dev/null && workers=(-n 8 --dist worksteal)
  timeout 240 python3 -m pytest -q -p no:cacheprovider "${workers[@]}" tests/gpu 2>&1 | tee "$out/gpu-tests.txt" || true
fi
measure() { timeout "$((595 - SECONDS))" python3 -m benchmarks.gpu --out "$out" "$@"; }
case ${sections[*]-} in
  none) ;;
  "")
    measure --no-inductor launch kernels
    measure --no-masked inference training
    measure --no-masked --models bert,resnet50 latency
    ;;
  *) measure "${sections[@]}" ;;
esac
