"""What a guest finds when it starts: programs, the libraries that they need, and the jobs to run.

The image is two archives: a large one that is kept while nothing in it changes, and a small one with the
jobs of one run. Nothing here needs to be root.
"""
import functools
import glob
import hashlib
import os
import re
import subprocess

from . import cpio, isa, packages

# Programs of the distribution, with all that they load.
PROGRAMS = ("usr/bin/redis-server", "usr/bin/redis-benchmark", "usr/bin/redis-cli", "usr/bin/sqlite3",
            "usr/bin/python3.13", "usr/lib/{triple}/libcrypto.so.3", "usr/lib/{triple}/libssl.so.3",
            "usr/lib/{triple}/libstdc++.so.6", "usr/lib/{triple}/libsqlite3.so.0", "usr/lib/{triple}/libm.so.6",
            "usr/lib/{triple}/libgcc_s.so.1")
# What tests start from shells; busybox, which has the rest, is static and hides its names.
SHELLS = ("bash", "dash", "cat", "echo", "ls", "tr", "sort", "tail", "mawk")
# Of Python's library, what the tests import; the rest is megabytes.
PYTHON_SKIPPED = ("test", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data", "turtledemo", "venv",
                  "sqlite3", "dbm", "curses", "config-", "__pycache__", "distutils", "wsgiref", "xmlrpc",
                  "_pyrepl", "pathlib/__pycache__")


@functools.lru_cache(maxsize=None)
def needed(readelf, path):
    """The names of the libraries that a file loads directly, its program interpreter, and where it has them looked for."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return [], None, []
    output = subprocess.run([readelf, "-ld", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            check=False).stdout
    interpreter = re.search(r"Requesting program interpreter: ([^\]]+)\]", output)
    folders = re.search(r"\(RUNPATH\).*\[(.+)\]", output)
    return (re.findall(r"\(NEEDED\).*\[(.+)\]", output), interpreter and interpreter.group(1),
            folders.group(1).split(":") if folders else [])


class Image:
    """The large archive of one architecture."""

    def __init__(self, arch):
        self.isa = isa.find(arch)
        self.tree = packages.user_tree(arch)
        self.files = {}  # name in the guest: path here
        self.trees = {}
        self.links = {"/lib": "usr/lib", "/sbin": "bin", "/usr/sbin": "bin", "/usr/bin/python3": "python3.13",
                      "/usr/bin/sh": "dash", "/usr/bin/awk": "mawk", "/bin/sh": "../usr/bin/dash"}
        self.links.update({f"/bin/{name}": f"../usr/bin/{name}" for name in SHELLS})
        self.add("/bin/busybox", os.path.join(self.tree, "usr/bin/busybox"))

    def add(self, name, path):
        """A file of this machine; what it loads comes with it."""
        name = os.path.normpath(name)
        if name in self.files:
            return
        self.files[name] = path
        libraries, interpreter, folders = needed(self.isa.triple + "-readelf", path)
        if interpreter:
            self.add("/usr" + interpreter, os.path.join(self.tree, interpreter.strip("/")))
        for library in libraries:
            inside = f"/usr/lib/{self.isa.triple}/{library}"
            here = self.tree + inside
            if os.path.exists(here):
                self.add(inside, here)
            for folder in folders:  # a library of this build
                here = os.path.join(folder.replace("$ORIGIN", os.path.dirname(path)), library)
                if os.path.exists(here):
                    self.add(os.path.join(folder.replace("$ORIGIN", os.path.dirname(name)), library), here)

    def add_distribution(self):
        """The programs that are probed, and Python for the tests."""
        for name in (*PROGRAMS, *(f"usr/bin/{name}" for name in SHELLS)):
            name = name.format(triple=self.isa.triple)
            self.add("/" + name, os.path.join(self.tree, name))
        base = os.path.join(self.tree, "usr/lib/python3.13")
        for path in sorted(glob.glob(base + "/**", recursive=True)):
            inside = os.path.relpath(path, base)
            if os.path.isfile(path) and not inside.startswith(PYTHON_SKIPPED) and "__pycache__" not in inside:
                self.add("/usr/lib/python3.13/" + inside, path)

    def write(self):
        """Writes the archive if it is not there as it would be. Returns its path."""
        digest = hashlib.sha256()
        for name, path in sorted(self.files.items()):
            stat = os.stat(path)
            digest.update(f"{name} {path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        digest.update(open(cpio.__file__, "rb").read() + open(__file__, "rb").read())
        init = os.path.join(os.path.dirname(os.path.abspath(__file__)), "init.sh")
        digest.update(open(init, "rb").read())
        folder = os.path.join(isa.cache_folder(), self.isa.name, "images")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, digest.hexdigest()[:16] + ".cpio")
        if os.path.exists(path):
            return path
        for old in sorted(glob.glob(folder + "/*.cpio"), key=os.path.getmtime)[:-8]:
            os.unlink(old)
        part = f"{path}.{os.getpid()}"
        archive = cpio.Archive(part)
        for folder in ("proc", "sys", "dev", "tmp", "run", "usr/lib", "usr/bin", "etc", "bin"):
            archive.folder(folder)
        for name, target in self.links.items():
            archive.link(name, target)
        archive.copy("/init", init)
        archive.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        archive.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n")
        for name, source in sorted(self.files.items()):
            archive.copy(name, source)
        archive.close()
        os.rename(part, path)
        return path


def write_jobs(path, jobs, shell=False):
    """The small archive: jobs are (name, limit in seconds, shell text)."""
    archive = cpio.Archive(path)
    archive.folder("jobs")
    if shell:
        archive.text("/jobs/shell", "")
    for number, (name, limit, text) in enumerate(jobs):
        archive.text(f"/jobs/{number:04}-{name}/limit", f"{limit}\n")
        archive.text(f"/jobs/{number:04}-{name}/run", text + "\n")
    archive.close()
