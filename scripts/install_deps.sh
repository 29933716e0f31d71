#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_deps.sh [build|ci]: installs what is missing, with apt (Debian 12 or newer, Ubuntu 24.04).
#
#   build  all that building, running and testing need (the default)
#   ci     besides: the formatter, clang with its OpenMP runtime and sanitizers, ccache, git
#
# Does nothing where all is there. Runs apt as root, or through sudo for others.
set -euo pipefail

packages=(
  g++ make cmake ninja-build pkg-config          # compiler and build
  libhwy-dev                                     # the library (OpenMP comes with g++)
  nlohmann-json3-dev libcli11-dev libfmt-dev     # the command
  libgtest-dev librapidcheck-dev libgmp-dev      # the tests
)
case ${1:-build} in
  build) ;;
  ci)
    packages+=(git ca-certificates ccache clang-format-14 clang-14 libomp-14-dev
               libclang-rt-14-dev python3-venv python3-dev)
    ;;
  *)
    echo "$0: unknown group '$1', expected build or ci" >&2
    exit 2
    ;;
esac

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "$0: there is no apt-get here; install these by hand: ${missing[*]}" >&2
  exit 1
fi
as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: neither root nor sudo; run this as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo "${as_root[@]}")
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null
