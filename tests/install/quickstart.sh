#!/bin/sh
# What ./quickstart asks of Meson, which is a script here that only notes it: a new directory is
# configured without GPU modules, one that somebody has configured keeps those that it has.
#
#     quickstart.sh
set -eu
tree=$(cd -- "$(dirname -- "$0")/../.." && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tools" "$work/tree/subprojects/unity-2.5.4"
cp "$tree/quickstart" "$work/tree/"
: >"$work/tree/subprojects/unity-2.5.4/meson.build"

# Nothing is installed or compiled: these are all the programs that there are.
for tool in cat cp dirname fold grep head id ls mkdir mktemp nproc paste python3 readlink rm sed \
    sh sort tail tee; do
    ln -s "$(command -v $tool)" "$work/tools/$tool"
done
for tool in ar cc ninja pkg-config; do
    printf '#!/bin/sh\n' >"$work/tools/$tool"
    chmod +x "$work/tools/$tool"
done
cat >"$work/tools/meson" <<'SH'
#!/bin/sh
case $1 in
--version)
    echo 1.0.0
    ;;
setup)
    echo "$*" >>"$NOTES"
    for last in "$@"; do :; done
    mkdir -p "$last"
    : >"$last/build.ninja"
    ;;
test)
    echo 'Ok: 1'
    ;;
esac
SH
chmod +x "$work/tools/meson"

failed=0
# asks TEXT...: `./quickstart test` asks for one setup, with these flags.
asks()
{
    rm -f "$work/notes"
    env -i "PATH=$work/tools" "HOME=$work" "NOTES=$work/notes" "MESON_OPTIONS=$options" \
        "$work/tree/quickstart" test >"$work/out" 2>&1 || {
        echo "FAILED: it ended with $?"
        cat "$work/out"
        failed=1
    }
    asked=$(cat "$work/notes" 2>/dev/null || echo nothing)
    [ "$asked" = "$*" ] || {
        echo "FAILED: it asked for '$asked', not '$*'"
        failed=1
    }
}

options='-Dsimt=false -Dmpi=disabled'
asks "setup -Dcuda=disabled -Drocm=disabled -Dtests=true $options build"
# As after a hand-made `meson setup build -Dcuda=enabled -Dtests=false`.
rm -rf "$work/tree/build"
mkdir "$work/tree/build"
: >"$work/tree/build/build.ninja"
asks "setup --reconfigure -Dtests=true $options build"
# The tests are there, the options are others.
echo libunity >"$work/tree/build/build.ninja"
options="$options -Dhwloc=disabled"
asks "setup --reconfigure $options build"
# All is there.
echo libunity >"$work/tree/build/build.ninja"
asks nothing

[ "$failed" = 0 ] && echo ok
exit "$failed"
