#!/usr/bin/env bash
# On a machine with many cores and PyTorch: scaling over threads, in under 10 minutes a part.
#   benchmarks/cores/cores.sh [--out FOLDER] [OPTION ...] [PART ...]     options and parts: see benchmarks/cores/__main__.py
# FOLDER gets cores.txt (the table) and cores.jsonl. Inductor is measured where there is a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/cores
rest=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift 2 ;;
    *) rest+=("$1"); shift ;;
  esac
done
mkdir -p "$out"
export MLIRC_CACHE_DIR=${MLIRC_CACHE_DIR:-off} PYTHONUNBUFFERED=1
export TORCHINDUCTOR_FORCE_DISABLE_CACHES=${TORCHINDUCTOR_FORCE_DISABLE_CACHES:-1}
lscpu >"$out/lscpu.txt" 2>/dev/null || true
${PYTHON:-python3} -W ignore -m benchmarks.cores --out "$out" ${rest[@]+"${rest[@]}"} 2>&1 | tee -a "$out/cores.txt"
