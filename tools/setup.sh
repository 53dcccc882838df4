#!/bin/sh
# Makes sure that the Debian packages are there that a step needs: build, demo, tidy or guest.
#
# As root it installs what is missing; otherwise it prints the one command to run and ends with
# status 2. With nothing missing it asks only dpkg's own database and is quick.
set -eu

build="gcc libc6-dev make meson ninja-build pkg-config python3 libelf-dev liblzma-dev libzydis-dev
libjansson-dev libiberty-dev libcmocka-dev libunicorn-dev redis-server redis-tools sqlite3
libsqlite3-dev openssl musl-tools lld mold binutils g++ golang-go libpython3.11-testsuite
gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"
demo="python3 redis-server redis-tools"
tidy="clang-tidy cppcheck"
# A cross compiler and a machine for each guest; what runs in it is fetched by tools/guest.py. The processors that
# run single programs of others come with it (tools/emulate.py), as they are needed for tests only.
guest="qemu-system-arm gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
qemu-system-misc gcc-riscv64-linux-gnu g++-riscv64-linux-gnu libc6-dev-riscv64-cross opensbi"

case "${1:-build}" in
build) wanted=$build ;;
demo) wanted=$demo ;;
tidy) wanted=$tidy ;;
guest) wanted=$guest ;;
*)
    echo "usage: tools/setup.sh build|demo|tidy|guest" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    # Not a Debian: meson will name what it does not find.
    exit 0
fi

# shellcheck disable=SC2086 # a list of words
installed=$(dpkg-query -W -f '${Status} ${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^install ok installed //p')
missing=
for package in $wanted; do
    case "
$installed
" in
    *"
$package
"*) ;;
    *) missing="$missing $package" ;;
    esac
done
emulators() {
    [ "$wanted" != "$guest" ] || "$(dirname "$0")/emulate.py" --fetch
}
if [ -z "$missing" ]; then
    emulators
    exit
fi

if [ "$(id -u)" != 0 ]; then
    echo "Some packages are missing. Run this as root, then try again:" >&2
    echo "    apt-get install --no-install-recommends -y$missing" >&2
    exit 2
fi

echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# No service is to be started: the demo runs its own redis-server.
policy=
if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
# shellcheck disable=SC2086
if ! apt-get install --no-install-recommends -y -qq $missing >&2; then
    apt-get update -qq >&2
    apt-get install --no-install-recommends -y -qq $missing >&2
fi
emulators
