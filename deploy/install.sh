#!/usr/bin/env bash
# Make the environment that deploy/pack.py packed: the trainer's versions, in ~/stoker.
#
#   bash stoker-workers/install.sh cpu      a worker: torch without CUDA, a tenth of the size
#   bash stoker-workers/install.sh cuda     a trainer: torch as the package index has it
#
# Edit nothing; set, where the default is wrong:
#   STOKER_ENV    where the environment goes            (~/stoker)
#   TORCH_INDEX   the package index that torch is from  (cpu: PyTorch's own)
#
# Promise: does nothing where this pack is installed already; a half-made one is made again.
# Ban: installs no other version than the lists', and nothing outside STOKER_ENV but, where
#   python3-venv is missing and sudo is to be had, that Debian package.
set -euo pipefail

pack="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="${1:-}"
env="${STOKER_ENV:-$HOME/stoker}"
case "$build" in
    cpu) index="${TORCH_INDEX-https://download.pytorch.org/whl/cpu}" ;;
    cuda) index="${TORCH_INDEX-}" ;;
    *)
        echo "usage: install.sh cpu|cuda" >&2
        exit 2
        ;;
esac

stamp="$(cat "$pack"/*.txt "$pack"/*.whl | sha256sum) $build"
if [ "$(cat "$env/.stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi

tools="$env-uv" # uv also fetches the Python of python.txt where the machine has another
if ! [ -x "$tools/bin/uv" ]; then
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        sudo apt-get -o DPkg::Lock::Timeout=300 update -q
        sudo apt-get -o DPkg::Lock::Timeout=300 install -qy --no-install-recommends python3-venv
    fi
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q uv
fi
install=("$tools/bin/uv" pip install -q --python "$env/bin/python")

"$tools/bin/uv" venv -q --clear --python "$(cat "$pack/python.txt")" "$env"
"${install[@]}" --no-deps -r "$pack/packages.txt" "$pack"/*.whl # the lists are whole: nothing to resolve
"${install[@]}" ${index:+--index-url "$index"} -r "$pack/torch.txt"
"$env/bin/python" -c 'import ray, stoker, torch'
echo "$stamp" >"$env/.stamp"
