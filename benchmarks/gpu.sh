#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, PyTorch and Triton: the GPU tests, then the benchmark, in under 10 minutes.
#   benchmarks/gpu.sh [--out FOLDER] [--pack FILE] [--no-tests] [SECTION ...]     sections: see benchmarks/gpu.py
# --pack is an archive (tar.xz) of MLIR's Python bindings, for a machine that cannot install them.
set -euo pipefail
cd "$(dirname "$0")/.."
out=benchmarks/results pack=.gpu/torch_mlir.tar.xz tests=1 sections=()
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
  [ -s "$pack" ] || { echo "gpu.sh: no MLIR bindings here: install torch-mlir==20261001, or give --pack FILE" >&2; exit 2; }
  mkdir -p "$site" && tar -C "$site" -xJf "$pack"
fi
python3 -c 'import mlirc' 2>/dev/null || python3 -m pip install -q --no-index --no-deps --no-build-isolation -e .
mkdir -p "$out"
if [ $tests = 1 ]; then
  workers=()
  python3 -c 'import xdist' 2>/dev/null && workers=(-n 8 --dist worksteal)
  timeout 240 python3 -m pytest -q -p no:cacheprovider "${workers[@]}" tests/gpu 2>&1 | tee "$out/gpu-tests.txt" || true
fi
[ "${sections[*]-}" = none ] || timeout 420 python3 -m benchmarks.gpu --out "$out" ${sections[@]+"${sections[@]}"}
