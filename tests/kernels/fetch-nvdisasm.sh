#!/bin/sh
# Bring nvdisasm, which direct.py reads machine code with, to the user's cache if there is none: it
# is not in every CUDA toolkit. From PyPI, where NVIDIA publishes it.
#
#     tests/kernels/fetch-nvdisasm.sh
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/treeattn
if [ -n "${NVDISASM:-}" ] || command -v nvdisasm >/dev/null ||
    [ -x /usr/local/cuda/bin/nvdisasm ] || [ -x "$cache/nvdisasm" ]; then
    exit 0
fi
mkdir -p "$cache"
folder=$(mktemp -d "$cache/nvdisasm.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
python3 -m pip download -q --no-deps -d "$folder" nvidia-cuda-nvdisasm
python3 -m zipfile -e "$folder"/nvidia_cuda_nvdisasm-*.whl "$folder"
found=$(find "$folder" -name nvdisasm -type f)
chmod +x "$found"
mv "$found" "$cache/nvdisasm"
echo "fetch-nvdisasm: $cache/nvdisasm"
