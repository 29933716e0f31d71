#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh cmake|pkg_config BUILD_DIR SOURCE_DIR VERSION CC CXX: installs the build into a scratch
# folder, moves the installed tree, and builds outside programs against it, shared and static, in C
# and C++; then runs them.
set -euo pipefail
mode=$1 build=$2 here=$3/tests/install version=$4
export CC=$5 CXX=$6
unset CFLAGS CXXFLAGS LDFLAGS CMAKE_PREFIX_PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/installed" >/dev/null
# Nothing in the tree may depend on where it was installed.
mv "$scratch/installed" "$scratch/moved here"
prefix="$scratch/moved here"
library=$(dirname "$(find "$prefix" -name libdosa.a)")

# run NAME COMMAND...: runs it, says so.
run() {
  local name=$1
  shift
  printf '%s: ' "$name"
  "$@"
}

case $mode in
  cmake)
    cmake -S "$here/outside" -B "$scratch/outside" -G Ninja -D CMAKE_PREFIX_PATH="$prefix" \
      -D EXPECTED_VERSION="$version" >/dev/null
    cmake --build "$scratch/outside" >/dev/null
    for program in c_shared c_static cpp_shared cpp_static; do
      run $program "$scratch/outside/$program"
    done
    cmake -S "$here/outside_c" -B "$scratch/outside_c" -G Ninja \
      -D CMAKE_PREFIX_PATH="$prefix" >/dev/null
    cmake --build "$scratch/outside_c" >/dev/null
    run c_only "$scratch/outside_c/c_only"
    ;;
  pkg_config)
    # pkg-config separates flags by spaces, so the folder's name may hold none.
    ln -s "$prefix" "$scratch/prefix"
    export PKG_CONFIG_PATH=$scratch/prefix/${library#"$prefix"/}/pkgconfig
    [ "$(pkg-config --modversion dosa)" = "$version" ]
    read -ra compile < <(pkg-config --cflags dosa)
    read -ra shared < <(pkg-config --libs dosa)
    read -ra static < <(pkg-config --static --libs dosa)
    static=("${static[@]/#-ldosa/-l:libdosa.a}")
    for language in c cpp; do
      compiler=$CC
      [ $language = c ] || compiler=$CXX
      source=$here/outside/use.$language
      "$compiler" "$source" "${compile[@]}" "${shared[@]}" -o "$scratch/${language}_shared"
      "$compiler" "$source" "${compile[@]}" "${static[@]}" -o "$scratch/${language}_static"
      run ${language}_shared env LD_LIBRARY_PATH="$library" "$scratch/${language}_shared"
      run ${language}_static "$scratch/${language}_static"
      if ldd "$scratch/${language}_static" | grep -q libdosa; then
        echo "${language}_static needs libdosa.so: it was not linked statically"
        exit 1
      fi
    done
    ;;
esac

# The shared library shows the C interface and nothing else, under its versioned name.
foreign=$(nm -D --defined-only "$library/libdosa.so" | awk '{print $NF}' | grep -v '^dosa_' || true)
if [ -n "$foreign" ]; then
  printf 'libdosa.so exports more than the C interface:\n%s\n' "$foreign"
  exit 1
fi
declared=$(cat "$prefix"/include/dosa/*.h | tr '\n' ' ' |
  grep -oE 'DOSA_API [a-z_]+( [a-z]+)*\*? *\*?dosa_[a-z_]+\(' | grep -oE 'dosa_[a-z_]+\($' |
  tr -d '(' | sort -u)
[ -n "$declared" ]
for function in $declared; do
  nm -D --defined-only "$library/libdosa.so" | grep -qE " T $function\$" || {
    echo "dosa.h declares $function, libdosa.so does not define it"
    exit 1
  }
done
objdump -p "$library/libdosa.so" | grep -q "SONAME  *libdosa.so.${version%%.*}\$"
if [ -x "$prefix/bin/dosa" ]; then run command "$prefix/bin/dosa" --version; fi
