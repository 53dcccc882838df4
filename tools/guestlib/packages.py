"""Debian packages of another architecture or suite, through an apt of our own.

The system's apt is not changed: sources, lists, state and cache are in folders of ours. The mirror is
the one that the system's sources name, the Debian archive keyring verifies the lists, and the lists'
hashes verify every package. What is unpacked once stays; a folder is renamed into place when it is whole.
"""
import contextlib
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import time

from . import isa

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LISTS_AGE_MAX = 7 * 86400  # seconds until the lists are fetched again
ATTEMPTS = 3

# The system's own hooks and lists of packages have no business here; its proxy stays.
CONFIG = """#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Architectures;
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
"""


class FetchError(SystemExit):
    """A suite or a package that can't be had: said, and never a reason to skip."""

    def __init__(self, message):
        super().__init__(f"guest: {message}")


@contextlib.contextmanager
def lock(name="lock"):
    """Held while the cache is changed; other runs wait."""
    folder = isa.cache_folder()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def mirror():
    """The Debian mirror that this system uses."""
    done = subprocess.run(["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)",
                           "Created-By: Packages"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False)
    for line in done.stdout.split("\n"):
        if re.search(r"/debian/?$", line):
            return line.rstrip("/")
    raise FetchError("the system's apt sources name no Debian mirror")


class Suite:
    """One suite's packages for one architecture."""

    def __init__(self, arch, suite):
        self.arch, self.suite = arch, suite
        self.folder = os.path.join(isa.cache_folder(), arch, suite)
        self.apt = os.path.join(self.folder, "apt")
        self.debs = os.path.join(self.folder, "debs")

    def _command(self, tool, *arguments):
        return [tool, "-c", os.path.join(self.apt, "apt.conf"), *arguments]

    def _read(self, tool, *arguments):
        done = subprocess.run(self._command(tool, *arguments), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise FetchError(f"{self.suite}/{self.arch}: {tool} {' '.join(arguments)}: "
                             f"{done.stderr.strip()[-500:]}")
        return done.stdout

    def _answer(self, tool, *arguments):
        """The same, remembered until the lists are read again: apt takes seconds to load them."""
        key = hashlib.sha256("\0".join((tool, *arguments)).encode()).hexdigest()
        path = os.path.join(self.apt, "answers", key)
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime >= os.stat(os.path.join(self.apt, "updated")).st_mtime:
                with open(path, encoding="utf-8") as file:
                    return file.read()
        text = self._read(tool, *arguments)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path + ".part", text)
        os.rename(path + ".part", path)
        return text

    def update(self, fresh=False):
        """Fetches the suite's lists, unless they are of this week."""
        stamp = os.path.join(self.apt, "updated")
        with contextlib.suppress(OSError):
            if not fresh and time.time() - os.stat(stamp).st_mtime < LISTS_AGE_MAX:
                return
        for part in ("state/lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self.apt, part), exist_ok=True)
        os.makedirs(self.debs, exist_ok=True)
        write(os.path.join(self.apt, "status"), "")
        write(os.path.join(self.apt, "apt.conf"), CONFIG.format(arch=self.arch, folder=self.apt))
        write(os.path.join(self.apt, "sources.list"),
              f"deb [arch={self.arch} signed-by={KEYRING}] {mirror()} {self.suite} main\n")
        print(f"guest: reading the lists of {self.suite} for {self.arch}", flush=True)
        self._read("apt-get", "update", "-q", "--error-on=any")
        write(stamp, "")

    def depends(self, package):
        """The names of what one package depends on directly."""
        output = self._answer("apt-cache", "depends", "--no-recommends", "--no-suggests", "--no-conflicts",
                              "--no-breaks", "--no-replaces", "--no-enhances", package)
        return re.findall(r"^ [ |]Depends: ([^<\s]+)$", output, re.M)

    def closure(self, names):
        """What has to be there for these packages: (name, file name, size, SHA256) of each."""
        output = self._answer("apt-get", "install", "-qq", "-y", "--print-uris", *names)
        return self._records(re.findall(r"^'[^']+' (\S+?)_\S+ \d+ ", output, re.M))

    def alone(self, names):
        """The same of these packages and of nothing that they depend on."""
        return self._records(names)

    def _records(self, names):
        records = []
        for block in self._answer("apt-cache", "show", "--no-all-versions", *names).split("\n\n"):
            field = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, re.M))
            if "SHA256" in field:
                version = field["Version"].replace(":", "%3a")
                records.append((field["Package"], f"{field['Package']}_{version}_{field['Architecture']}.deb",
                                int(field["Size"]), field["SHA256"]))
        if len({record[0] for record in records}) != len(set(names)):
            raise FetchError(f"{self.suite}/{self.arch}: not all in the lists: {' '.join(names)}")
        return sorted(records)

    def download(self, records):
        """Has the packages in the cache, each with the size and hash of the lists. Returns their paths."""
        for attempt in range(ATTEMPTS):
            missing = [record for record in records if not self._whole(record)]
            if not missing:
                return [os.path.join(self.debs, record[1]) for record in records]
            size = sum(record[2] for record in missing) / 1e6
            print(f"guest: fetching {len(missing)} packages of {self.suite} for {self.arch}, {size:.1f} MB"
                  + (" again" if attempt else ""), flush=True)
            subprocess.run(self._command("apt-get", "download", "-q", *(record[0] for record in missing)),
                           cwd=self.debs, stdout=subprocess.DEVNULL, check=False)
        names = " ".join(record[0] for record in records if not self._whole(record))
        raise FetchError(f"{self.suite}/{self.arch}: could not be fetched, or differ from the lists: {names}")

    def _whole(self, record):
        path = os.path.join(self.debs, record[1])
        if not os.path.exists(path) or os.path.getsize(path) != record[2]:
            return False
        marked = path + ".verified"
        if os.path.exists(marked) and os.stat(marked).st_mtime >= os.stat(path).st_mtime:
            return True
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        if digest.hexdigest() != record[3]:
            os.unlink(path)
            return False
        write(marked, "")
        return True

    def unpack(self, records, name, only=()):
        """Downloads and unpacks packages, or only some of their files, into one folder of this suite. Returns it."""
        target = os.path.join(self.folder, name)
        content = "".join(f"{record[1]} {record[3]}\n" for record in records) + "".join(f"{path}\n" for path in only)
        stamp = target + ".packages"
        if os.path.isdir(target) and os.path.exists(stamp):
            with open(stamp, encoding="utf-8") as file:
                if file.read() == content:
                    return target
        paths = self.download(records)
        half = target + ".part"
        shutil.rmtree(half, ignore_errors=True)
        for merged in ("lib", "bin", "sbin"):
            os.makedirs(os.path.join(half, "usr", merged))
            os.symlink("usr/" + merged, os.path.join(half, merged))
        for path in paths:
            subprocess.run(f'dpkg-deb --fsys-tarfile "{path}" | '
                           f'tar -x --keep-directory-symlink --no-same-owner -C "{half}" -f - {" ".join(only)}',
                           shell=True, check=True)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(half, target)
        write(stamp, content)
        return target


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def user_tree(arch, fresh=False):
    """The folder with the user space of a guest: what is linked with and what runs there."""
    suite = Suite(arch, isa.USER_SUITE)
    with lock():
        suite.update(fresh)
        return suite.unpack(suite.closure(isa.SYSROOT_PACKAGES + isa.USER_PACKAGES), "root")


def newest():
    """Debian's newest suite, for this machine."""
    done = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True)
    return Suite(done.stdout.strip(), isa.NEWEST_SUITE)


def binutils(target):
    """Debian's newest binutils for a target, run on this machine: (what stands before a program's path, their folder)."""
    suite = newest()
    with lock():
        suite.update()
        tree = suite.unpack(suite.closure(["binutils-" + target]), "binutils-" + target)
    loaders = glob.glob(os.path.join(tree, "usr/lib/*/ld-linux*.so.*"))
    if len(loaders) != 1:
        raise FetchError(f"{suite.suite}/{suite.arch}: {len(loaders)} loaders beside binutils-{target}")
    return [loaders[0], "--library-path", os.path.dirname(loaders[0])], os.path.join(tree, "usr/bin")


def emulators():
    """Debian's newest qemu-user: (the folder of its programs, its version). They are linked statically."""
    suite = newest()
    with lock():
        suite.update()
        records = suite.alone(["qemu-user"])
        programs = [f"./usr/bin/qemu-{name}" for name in isa.EMULATED]
        tree = suite.unpack(records, "qemu-user", programs)
    return os.path.join(tree, "usr/bin"), re.search(r"_(?:\d+%3a)?([\d.]+)", records[0][1]).group(1)


def kernel(arch, name, fresh=False):
    """The newest kernel of a suite, or of a flavour of it. Returns (path of the image, release)."""
    suite_name, _, flavour = name.partition("-")
    suite = Suite(arch, suite_name)
    meta = isa.find(arch).kernel_meta + (f"-{flavour}" if flavour else "")
    with lock():
        suite.update(fresh)
        image = next((found for found in suite.depends(meta) if found.startswith("linux-image-")), None)
        if not image:
            raise FetchError(f"{name}/{arch}: {meta} leads to no kernel")
        release = image.removeprefix("linux-image-").removesuffix("-unsigned")
        wanted = [image] + [found for found in suite.depends(image)
                            if found.startswith("linux-binary-" + release)]
        tree = suite.unpack(suite.alone(wanted), f"kernel-{flavour or 'plain'}")
    images = (glob.glob(os.path.join(tree, "boot", "vmlinu*"))
              + glob.glob(os.path.join(tree, "usr/lib/modules", release, "vmlinu*")))
    if len(images) != 1:
        raise FetchError(f"{name}/{arch}: {image} holds {len(images)} kernel images")
    return images[0], release
