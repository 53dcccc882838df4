"""A cross build of the tree: meson's cross file for one architecture, and its build folder.

The sysroot is Debian's own packages of the suite that the guest runs. Its start files and libraries come
before those of the cross compiler's own C library, which is this system's and may be older.
"""
import os
import shutil
import subprocess

from . import isa, packages

FILE = """# Written by tools/guest.py: a cross build for {name} against {tree}.
[binaries]
c = '{triple}-gcc'
cpp = '{triple}-g++'
ar = '{triple}-ar'
strip = '{triple}-strip'
objcopy = '{triple}-objcopy'
nm = '{triple}-nm'
readelf = '{triple}-readelf'
pkgconfig = 'pkg-config'

[built-in options]
c_args = ['--sysroot={tree}']
cpp_args = ['--sysroot={tree}']
c_link_args = ['--sysroot={tree}', '-B{tree}/usr/lib/{triple}']
cpp_link_args = ['--sysroot={tree}', '-B{tree}/usr/lib/{triple}']

[properties]
sys_root = '{tree}'
pkg_config_libdir = ['{tree}/usr/lib/{triple}/pkgconfig', '{tree}/usr/share/pkgconfig']
needs_exe_wrapper = true

[host_machine]
system = 'linux'
cpu_family = '{cpu_family}'
cpu = '{cpu}'
endian = 'little'
"""


def write_file(arch, fresh=False):
    """Writes meson's cross file into the cache. Returns its path."""
    this = isa.find(arch)
    if not shutil.which(this.triple + "-gcc"):
        raise packages.FetchError(f"no {this.triple}-gcc: tools/setup.sh guest, or install {this.compiler}")
    tree = packages.user_tree(arch, fresh)
    text = FILE.format(name=arch, triple=this.triple, tree=tree, cpu_family=this.cpu_family, cpu=this.cpu)
    path = os.path.join(isa.cache_folder(), arch, "meson-cross.ini")
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        packages.write(path, text)
    return path


def build(arch, folder, jobs):
    """Sets up or refreshes the build folder of an architecture and builds in it."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [os.path.join(source, "tools/build.sh"), folder, str(jobs), "--cross-file", write_file(arch)]
    with packages.lock("build-" + os.path.abspath(folder).replace("/", "-")):
        done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(f"guest: the build for {arch} failed")
