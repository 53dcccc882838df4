#!/bin/sh
# clang-tidy and cppcheck over our own sources. Findings end it with status 1.
# usage: tools/tidy.sh BUILD_FOLDER
set -eu
cd "$(dirname "$0")/.."
build=$1
status=0

# Only what the build compiles, and only what is ours (no generated file).
files=$(python3 - "$build" <<'PY'
import json, os, sys
build = sys.argv[1]
root = os.getcwd()
seen = set()
for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
    path = os.path.relpath(os.path.normpath(os.path.join(entry["directory"], entry["file"])), root)
    if path.endswith(".c") and path.startswith(("src/", "bench/")) and path not in seen:
        seen.add(path)
        print(path)
PY
)

echo "clang-tidy"
# shellcheck disable=SC2086
printf '%s\n' $files | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" 2>/dev/null || status=1

echo "cppcheck"
# shellcheck disable=SC2086
cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
    --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --error-exitcode=1 \
    -D_GNU_SOURCE -DTL_VERSION='"0"' -Isrc -j "$(nproc)" $files || status=1
exit $status
