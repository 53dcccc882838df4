#!/bin/sh
# Sets a build folder up once, changes its options when they differ, and builds.
# usage: tools/build.sh FOLDER JOBS [MESON OPTION...]
set -eu
folder=$1
jobs=$2
shift 2
cd "$(dirname "$0")/.."
if [ -f "$folder/build.ninja" ]; then
    meson configure "$folder" "$@" >/dev/null
else
    meson setup "$folder" "$@" >"$folder.log" 2>&1 || {
        cat "$folder.log" >&2
        rm -f "$folder.log"
        exit 1
    }
    rm -f "$folder.log"
fi
exec ninja -C "$folder" -j "$jobs" --quiet
