#!/bin/sh
# Sets a build folder up once, changes its options when they differ, and builds.
# usage: tools/build.sh FOLDER JOBS [MESON OPTION...]
set -eu
folder=$1
jobs=$2
shift 2
cd "$(dirname "$0")/.."
known=$folder/options-given
log=$folder-setup.log
if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$known" 2>/dev/null)" != "$*" ]; then
    again=
    [ -f "$folder/build.ninja" ] && again=--reconfigure
    # shellcheck disable=SC2086 # empty, or one word
    if ! meson setup $again "$folder" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
    echo "$*" >"$known"
fi
exec ninja -C "$folder" -j "$jobs" --quiet
