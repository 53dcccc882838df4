#!/bin/sh
# Builds the victims of find's tests: build.sh SOURCES OUT STAMP. Variants whose linker or library is not installed
# are left out; the tests that want them skip themselves.
set -eu
src=$1 out=$2 stamp=$3
rm -rf "$out"
mkdir -p "$out"
flags="-O2 -fcf-protection=full -w -Wl,--build-id=sha1"

have() { command -v "$1" >/dev/null 2>&1; }
basic() { name=$1; shift; "${CC:-gcc}" $flags -o "$out/$name" "$src/basic.c" "$src/other.c" "$@"; }
try() { name=$1; basic "$@" 2>/dev/null || rm -f "$out/$name"; }
# Drops the section headers, as some packers do.
sectionless() {
    python3 - "$1" "$2" <<'PY'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
struct.pack_into("<Q", data, 0x28, 0)
struct.pack_into("<HHH", data, 0x3a, 0, 0, 0)
open(sys.argv[2], "wb").write(data)
PY
    chmod +x "$2"
}

# --- linkers and layouts
basic basic -pie -fPIE
basic basic-nopie -no-pie -fno-pie
basic basic-static -static -no-pie
basic basic-one-segment -pie -fPIE -Wl,-z,noseparate-code
basic basic-prelinked -pie -fPIE -Wl,-Ttext-segment=0x34fd200000
try basic-static-pie -static-pie -fPIE
if have ld.lld; then try basic-lld -pie -fPIE -fuse-ld=lld; fi
if have ld.lld; then try basic-lld-relr -pie -fPIE -fuse-ld=lld -Wl,--pack-dyn-relocs=relr; fi
if have mold; then try basic-mold -pie -fPIE -fuse-ld=mold; fi
if have ld.gold; then try basic-gold -pie -fPIE -fuse-ld=gold; fi
if have musl-gcc; then CC=musl-gcc try basic-musl -pie -fPIE; CC=musl-gcc try basic-musl-static -static; fi
gcc $flags -nostdlib -static -no-pie -Wl,-T,"$src/segments.ld" -Wl,--build-id=none -o "$out/segments" "$src/segments.c"

# --- what strip leaves
basic basic-dynamic -pie -fPIE -rdynamic
strip "$out/basic-dynamic"
cp "$out/basic" "$out/basic-stripped" && strip "$out/basic-stripped"
sectionless "$out/basic-dynamic" "$out/basic-sectionless"

# --- other instruction sets
if have riscv64-linux-gnu-gcc; then
    riscv64-linux-gnu-gcc -nostdlib -static -o "$out/marks-riscv64" "$src/marks_riscv64.S"
fi

# --- names
g++ $flags -o "$out/overload" "$src/overload.cc"
gcc $flags -o "$out/rust-names" "$src/rust_names.S"
gcc $flags -shared -fPIC -Wl,--version-script="$src/versions.map" -Wl,-soname,libversions.so.1 \
    -o "$out/libversions.so" "$src/versions.c"
cp "$out/libversions.so" "$out/libversions-stripped.so" && strip "$out/libversions-stripped.so"
gcc $flags -o "$out/rseq" "$src/rseq.S"

# --- IFUNCs
gcc $flags -pie -fPIE -o "$out/ifunc" "$src/ifunc.c"
gcc $flags -static-pie -fPIE -o "$out/ifunc-static-pie" "$src/ifunc.c" 2>/dev/null || rm -f "$out/ifunc-static-pie"
gcc $flags -static -no-pie -o "$out/ifunc-static" "$src/ifunc.c"
gcc $flags -shared -fPIC -DLIBRARY -Wl,-z,lazy -o "$out/libifunc.so" "$src/ifunc.c"
gcc $flags -pie -fPIE -Wl,-z,lazy -o "$out/ifunc-lazy" "$src/ifunc_user.c" -L"$out" -lifunc -Wl,-rpath,"$out"
gcc $flags -pie -fno-plt -fPIE -Wl,-z,now -o "$out/ifunc-now" "$src/ifunc_user.c" -L"$out" -lifunc -Wl,-rpath,"$out"

# --- modules
gcc $flags -shared -fPIC -DVARIANT=1 -Wl,-soname,liblibrary.so.3 -o "$out/liblibrary.so.3.1" "$src/library.c"
ln -sf liblibrary.so.3.1 "$out/liblibrary.so.3"
ln -sf liblibrary.so.3 "$out/liblibrary.so"
gcc $flags -shared -fPIC -DVARIANT=2 -Wl,-soname,liblibrary.so.3 -o "$out/other-library" "$src/library.c"
gcc $flags -pie -fPIE -o "$out/library-user" "$src/library_user.c" -L"$out" -llibrary -Wl,-rpath,"$out" -ldl
gcc $flags -no-pie -fno-pie -o "$out/library-user-nopie" "$src/library_user.c" -L"$out" -llibrary \
    -Wl,-rpath,"$out" -ldl

# --- separate debug files
debug=$out/debug
id=$(readelf -n "$out/basic" | sed -n 's/.*Build ID: *//p')
head=$(echo "$id" | cut -c1-2) tail=$(echo "$id" | cut -c3-)
mkdir -p "$debug/.build-id/$head" "$debug/wrong/.build-id/$head" "$debug/link/.debug" "$debug/crc" \
    "$debug/root/usr/lib/debug/.build-id/$head"
objcopy --only-keep-debug "$out/basic" "$debug/basic.debug"
cp "$debug/basic.debug" "$debug/.build-id/$head/$tail.debug"
cp "$debug/basic.debug" "$debug/root/usr/lib/debug/.build-id/$head/$tail.debug"
objcopy --only-keep-debug "$out/basic-nopie" "$debug/wrong/.build-id/$head/$tail.debug"
# By link beside the file, and in .debug; the build-id says whether it belongs.
(cd "$debug/link" && cp ../basic.debug .debug/basic.debug &&
    objcopy --strip-all --add-gnu-debuglink=.debug/basic.debug "$out/basic" linked)
# By CRC alone: no build-id on either side.
basic nobuildid -pie -fPIE -Wl,--build-id=none
(cd "$debug/crc" && objcopy --only-keep-debug "$out/nobuildid" nobuildid.debug &&
    objcopy --strip-all --add-gnu-debuglink=nobuildid.debug "$out/nobuildid" good &&
    cp nobuildid.debug changed.debug && objcopy --strip-all --add-gnu-debuglink=changed.debug "$out/nobuildid" bad &&
    printf x >>changed.debug)
# A link that wants out of its directory, to a file that would fit.
mkdir -p "$debug/evil/in"
cp "$debug/crc/nobuildid.debug" "$debug/evil/secret.debug"
python3 - "$debug/evil/secret.debug" "$debug/evil/link.bin" <<'PY'
import struct, sys, zlib
crc = zlib.crc32(open(sys.argv[1], "rb").read())
open(sys.argv[2], "wb").write(b"../secret.debug\0" + struct.pack("<I", crc))
PY
objcopy --strip-all --add-section .gnu_debuglink="$debug/evil/link.bin" "$out/nobuildid" "$debug/evil/in/evil"
cp "$debug/evil/secret.debug" "$debug/evil/in/secret.debug"
python3 - "$debug/evil/link.bin" "$debug/evil/in/link.bin" <<'PY'
import sys
link = open(sys.argv[1], "rb").read()
open(sys.argv[2], "wb").write(b"secret.debug\0\0\0\0" + link[-4:])
PY
objcopy --strip-all --add-section .gnu_debuglink="$debug/evil/in/link.bin" "$out/nobuildid" "$debug/evil/in/tame"

# --- .gnu_debugdata
if have xz; then
    nm "$out/basic" -D --defined-only --format=posix | awk '{print $1}' | sort >"$out/dynamic.names"
    nm "$out/basic" --defined-only --format=posix | awk '$2 ~ /^[tT]$/ {print $1}' | sort >"$out/function.names"
    comm -13 "$out/dynamic.names" "$out/function.names" >"$out/keep.names"
    objcopy -S --remove-section .comment --keep-symbols="$out/keep.names" "$debug/basic.debug" "$out/mini"
    xz -f "$out/mini"
    objcopy --strip-all --add-section .gnu_debugdata="$out/mini.xz" "$out/basic" "$out/basic-debugdata"
    head -c 2000 "$out/mini.xz" >"$out/cut.xz"
    objcopy --strip-all --add-section .gnu_debugdata="$out/cut.xz" "$out/basic" "$out/basic-debugdata-cut"
    # A bomb: 80 MB of zeros in a few dozen kilobytes.
    head -c 80000000 /dev/zero | xz -0 >"$out/bomb.xz"
    objcopy --strip-all --add-section .gnu_debugdata="$out/bomb.xz" "$out/basic" "$out/basic-debugdata-bomb"
fi

# --- a table longer than one bit map of DT_RELR
python3 - >"$out/table.c" <<'PY'
for index in range(200):
    print(f"__attribute__((noinline)) static int entry{index}(int x) {{ return x + {index}; }}")
print("int (*volatile table[])(int) = {")
for index in range(200):
    print(f"    entry{index}," + (" 0," if index % 3 == 0 else ""))
print("};\nint main(int argc, char **argv) { (void)argv; return table[argc % 9](argc); }")
PY
gcc $flags -pie -fPIE -o "$out/table" "$out/table.c"
if have ld.lld; then
    gcc $flags -pie -fPIE -fuse-ld=lld -Wl,--pack-dyn-relocs=relr -o "$out/table-relr" "$out/table.c"
fi
rm -f "$out/table.c"

# --- one large program: many names to look through
python3 - >"$out/large.S" <<'PY'
print('    .text\n    .macro function name\n    .globl \\name\n    .type \\name,@function\n\\name:\n    ret\n'
      '    .size \\name,.-\\name\n    .endm\n    function main')
for index in range(100000):
    print(f"    function _ZN5large10name{index:06d}Ei" if index % 2 else f"    function plain_name_{index}")
print('    .section .note.GNU-stack,"",@progbits')
PY
gcc $flags -o "$out/large" "$out/large.S"
rm -f "$out/large.S"
touch "$stamp"
