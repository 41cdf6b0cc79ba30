#!/bin/sh
# Does `pip install .` work on a machine that has nothing? Makes a bare Debian root for each suite
# named, installs there what ./quickstart installs and python3-venv, and runs the commands and the
# Python of README.md; then a source distribution, a wheel made from that one, and the wheel in an
# environment without a compiler. By hand, and in .ci/full: it needs root, a mirror, PyPI and some
# minutes.
#
#     sudo tests/install/python-root.sh bookworm trixie
#
# debian-root.sh says where the mirror comes from. bare-root.sh is the same for ./quickstart.
set -eu

tree=$(cd -- "$(dirname -- "$0")/../.." && pwd)
clone='/srv/a clone/treeattn' # with a space, which must not matter
# shellcheck disable=SC2034 # for debian-root.sh
me=python-root
root=
# shellcheck source=tests/install/debian-root.sh
. "$tree/tests/install/debian-root.sh"

case ${1:-} in
'' | -*) fail "usage: $0 SUITE... (such as bookworm, trixie)" ;;
esac
need_tools

# step WHAT COMMAND...: inside the root, in the clone; its output matters only if it fails.
step()
{
    what=$1
    shift
    if ! inside sh -c 'cd "$1" && shift && "$@"' sh "$clone" "$@" >"$root/step.log" 2>&1; then
        cat "$root/step.log" >&2
        fail "$suite: $what failed"
    fi
}

# example PYTHON: the program of README.md says what README.md says that it prints.
example()
{
    sed -n '/^```python$/,/^```$/p' "$tree/README.md" | sed '1d;$d' >"$root/srv/example.py"
    wanted=$(sed -n '/^```python$/,$p' "$tree/README.md" | sed -n 's/^prints `\([^`]*\)`.*/\1/p' |
        head -n 1)
    step "the Python of README.md with $1" "$1" /srv/example.py
    [ -n "$wanted" ] && [ "$(cat "$root/step.log")" = "$wanted" ] ||
        fail "$suite: the Python of README.md printed $(cat "$root/step.log"), not $wanted"
}

for suite; do
    new_root "$suite"
    pip_settings
    git clone -q --no-hardlinks "$tree" "$root$clone"

    # What is installed is the same without tests and benchmark, which would take minutes to build.
    step './quickstart build' env MESON_OPTIONS='-Dtests=false -Dbench=false' ./quickstart build
    step 'python3-venv' apt-get install -q -y --no-install-recommends python3-venv
    inside rm -rf "$clone/build"
    begin=$(date +%s)
    step 'python3 -m venv' python3 -m venv /srv/fresh
    step "pip install '.[numpy]'" /srv/fresh/bin/pip install '.[numpy]'
    say "$suite: pip install took $(($(date +%s) - begin)) s"
    example /srv/fresh/bin/python
    step 'python -m treeattn info' /srv/fresh/bin/python -m treeattn info
    say "$suite: $(head -n 1 "$root/step.log")"

    # The build front end of PyPI makes the source distribution, and the wheel from that alone.
    step 'pip install build' /srv/fresh/bin/pip install build
    step 'python -m build' /srv/fresh/bin/python -m build -o /srv/dist .
    step 'a second environment' python3 -m venv /srv/second
    step 'removing the compiler' apt-get purge -q -y gcc cpp meson ninja-build
    step 'pip install of the wheel' sh -c '/srv/second/bin/pip install numpy /srv/dist/*.whl'
    example /srv/second/bin/python
    say "$suite: $(inside python3 --version), $(cd "$root/srv/dist" && echo *)"
done
