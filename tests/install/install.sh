#!/bin/sh
# Install the library into a scratch directory, and build and run example.c against it through
# pkg-config and, where it is, CMake: shared, then static. Also: the soname, the version and the
# headers are right, and the installed program finds its library by itself.
#
#     install.sh BUILD_DIR MESON CC [FLAGS...]
set -eu
tree=$(cd -- "$(dirname -- "$0")/../.." && pwd)
build=$1
meson=$2
shift 2 # "$@" is the compiler from here on

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

fail()
{
    printf 'install: %s\n' "$*" >&2
    exit 1
}

version_part()
{
    sed -n "s/^#define TA_VERSION_$1 \([0-9]*\)\$/\1/p" "$tree/include/treeattn/version.h"
}
major=$(version_part MAJOR)
version=$major.$(version_part MINOR).$(version_part PATCH)

"$meson" install -C "$build" --no-rebuild --skip-subprojects --destdir "$stage" \
    >"$stage/log" 2>&1 || {
    cat "$stage/log"
    fail 'meson install failed'
}

library=$(find "$stage" -name "libtreeattn.so.$version" -type f)
[ -n "$library" ] || fail "no libtreeattn.so.$version was installed"
libdir=$(dirname "$library")
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]$/\1/p')
[ "$soname" = "libtreeattn.so.$major" ] ||
    fail "the soname is $soname, not libtreeattn.so.$major"
! readelf -d "$library" | grep -E 'RUNPATH|RPATH' ||
    fail 'the installed library looks for modules in the build that it is from'
for name in "$soname" libtreeattn.so libtreeattn.a pkgconfig/treeattn.pc; do
    [ -e "$libdir/$name" ] || fail "$name was not installed"
done

export PKG_CONFIG_LIBDIR="$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$stage"
[ "$(pkg-config --modversion treeattn)" = "$version" ] ||
    fail "treeattn.pc has version $(pkg-config --modversion treeattn), version.h $version"
headers=$(pkg-config --variable=includedir treeattn)
for header in "$tree"/include/treeattn/*.h; do
    cmp "$header" "$stage${headers#"$stage"}/treeattn/$(basename "$header")"
done

example() # NAME PKG-CONFIG-FLAG COMPILER...
{
    name=$1
    flag=$2
    shift 2
    # shellcheck disable=SC2046 # pkg-config prints words
    "$@" -o "$stage/$name" "$tree/tests/install/example.c" \
        $(pkg-config $flag --cflags --libs treeattn) -lm || fail "example.c does not build: $name"
    LD_LIBRARY_PATH=$libdir "$stage/$name" || fail "example.c fails: $name"
    echo "ok: $name"
}
example shared '' "$@"
readelf -d "$stage/shared" | grep -q "NEEDED.*$soname" || fail "shared does not need $soname"

# No variable helps the benchmark: it finds the library from where it is.
bench=$(find "$stage" -name treeattn-bench -type f)
if [ -n "$bench" ]; then
    found=$(env -u LD_LIBRARY_PATH ldd "$bench" | sed -n "s/.*$soname => \(.*\) (.*/\1/p")
    [ "$(realpath "$found")" = "$library" ] ||
        fail "the installed treeattn-bench finds $soname in '$found', not in $libdir"
    [ -n "$(find "$stage" -name 'treeattn-bench.1*')" ] || fail 'no man page was installed'
    # Likewise its scripts, also where the whole was moved to.
    script=$(find "$stage" -name report.py -type f)
    mv "$script" "$script.real"
    echo 'print("the script beside the program")' >"$script"
    ran=$("$bench" report)
    mv "$script.real" "$script"
    [ "$ran" = 'the script beside the program' ] ||
        fail "the installed treeattn-bench report runs another script: $ran"
fi

# find_package(), with nothing but the prefix.
if command -v cmake >/dev/null; then
    prefix=$(dirname "$(dirname "$(find "$stage" -path '*/include/treeattn')")")
    CC=$* cmake -S "$tree/tests/install/cmake" -B "$stage/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
        >"$stage/log" 2>&1 && cmake --build "$stage/cmake" >>"$stage/log" 2>&1 || {
        cat "$stage/log"
        fail 'CMake does not find or link the library'
    }
    for kind in treeattn static; do
        "$stage/cmake/example-$kind" || fail "example.c fails: CMake, $kind"
        echo "ok: CMake, $kind"
    done
else
    echo 'no CMake here: find_package() was not tried'
fi

# With the shared library gone, -ltreeattn is the static one, and --static names what that needs.
rm "$libdir"/libtreeattn.so*
example static --static "$@"
