#!/bin/sh
# The tests that need PyTorch, transformers and other libraries, in an environment of their own that
# is kept in the user's cache directory: several GB from PyPI, the first time.
#
#     torch.sh BUILD_DIR     run the tests with the library of a build
#     torch.sh --prepare     make the environment, if it is not there
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/treeattn/python-env
python=$environment/bin/python

# OpenVINO is not imported here: it would send for its statistics.
if ! "$python" -c 'import torch, transformers, numpy, mpi4py, jax, importlib.util as util
assert util.find_spec("openvino")' 2>/dev/null; then
    system=/usr/bin/python3
    [ -x "$system" ] || system=python3
    echo "getting PyTorch, transformers, JAX and OpenVINO from PyPI into $environment"
    if ! { "$system" -m venv "$environment" &&
        "$environment/bin/pip" install -q torch transformers numpy mpi4py jax openvino; }; then
        exit 1
    fi
fi
[ "$1" != --prepare ] || exit 0
build=$(cd -- "$1" && pwd)

# shellcheck source=tests/lib/checks.sh
. "$here/../../tests/lib/checks.sh"
run() # TEST
{
    run_check "$1" "$here/run.py" "$build/src/libtreeattn.so" "$1"
}

# The wheel, all of it built from the source distribution, with the Python that users have.
! command -v ccache >/dev/null || export CC="${CC:-ccache cc}"
run test_wheel.py
export TREEATTN_PYTHON="$python"
run torch_arrays.py
run torch_ops.py
run torch_models.py
run torch_masks.py
run torch_prefill.py
run torch_narrow.py
run torch_generate.py
run torch_llama.py
end_checks
