# SPDX-License-Identifier: Apache-2.0
# Sourced by the checks beside it: which files belong to the project.

# Prints the project's text files under ROOT, one path a line, relative to it: what git tracks or
# would track; without git, all but hidden folders and build trees.
project_files() {
  local root=$1
  if git -C "$root" rev-parse --show-toplevel >/dev/null 2>&1; then
    git -C "$root" ls-files --cached --others --exclude-standard
  else
    (cd "$root" && find . -type d \( -name '.?*' -o -name 'build*' \) -prune -o -type f -print) |
      sed 's|^\./||'
  fi | while IFS= read -r file; do
    # A binary file (a trace, a picture) is no text; a deleted file is still in git's index.
    if [ -s "$root/$file" ] && grep -qI '' "$root/$file"; then echo "$file"; fi
  done | sort -u
}

# Of these, the C, C++ and CUDA files.
code_files() {
  project_files "$1" | grep -E '\.(c|h|cpp|hpp|cu|cuh)$'
}
