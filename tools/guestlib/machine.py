"""Runs jobs in a guest and hands back what each printed and how it ended.

One machine for one list of jobs. Its console is the only channel; lines that begin with @guest are init's
own (see init.sh). Invariant: no machine is left behind, and a job that was not seen to end is a failure.
"""
import ctypes
import dataclasses
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import image, isa, packages

MEMORY_MB = 1500
BOOT_SECONDS = 120
STATUS_UNKNOWN = 255
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_us():
    """In the machine's process: whatever ends this program ends the machine."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclasses.dataclass
class Result:
    """How one job went."""
    name: str
    status: int
    seconds: float
    output: str


class Machine:
    """One guest: an architecture, a kernel, and how its time goes."""

    def __init__(self, arch, kernel, archive, icount=False, cpus=2, model=None, cpu=None):
        self.isa = isa.find(arch)
        self.archive = archive
        self.kernel, self.release = packages.kernel(arch, kernel)
        if not shutil.which(self.isa.qemu):
            raise packages.FetchError(f"no {self.isa.qemu}: tools/setup.sh guest, or install "
                                      f"{self.isa.qemu_package}")
        words = dict(zip(self.isa.machine[::2], self.isa.machine[1::2]))
        words.update({word: value for word, value in (("-M", model), ("-cpu", cpu)) if value})
        self.arguments = [self.isa.qemu, *(word for pair in words.items() for word in pair), "-m", f"{MEMORY_MB}M",
                          "-nographic", "-no-reboot", "-nic", "none", "-monitor", "none", "-serial", "stdio"]
        self.arguments += (["-smp", "1", "-icount", "shift=0,sleep=off"] if icount else
                           ["-smp", str(cpus), "-accel", "tcg,thread=multi"])

    def _command(self, folder, jobs, shell):
        own = os.path.join(folder, "jobs.cpio")
        image.write_jobs(own, jobs, shell)
        whole = os.path.join(folder, "initrd")
        with open(whole, "wb") as target:
            for part in (self.archive, own):
                with open(part, "rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
        return self.arguments + ["-kernel", self.kernel, "-initrd", whole, "-append",
                                 f"console={self.isa.console} panic=-1 quiet loglevel=1 rdinit=/init"]

    def shell(self):
        """A prompt on this terminal."""
        with tempfile.TemporaryDirectory(prefix="trapless-guest-") as folder:
            subprocess.run(self._command(folder, [], True), check=False)

    def run(self, jobs, told=None):
        """Runs jobs, (name, limit in seconds, shell text) each; told is called with each Result at once."""
        results, lines = [], []
        names = [job[0] for job in jobs]
        limit = BOOT_SECONDS + sum(job[1] for job in jobs)
        with tempfile.TemporaryDirectory(prefix="trapless-guest-") as folder:
            process = subprocess.Popen(self._command(folder, jobs, False), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_us)
            try:
                for line in self._lines(process, limit):
                    words = line.split()
                    if words[:2] == ["@guest", "end"] and len(words) == 5:
                        text = "\n".join(lines[1:] if lines else [])
                        results.append(Result(words[2], int(words[3]), int(words[4]) / 1000, text.strip("\n")))
                        lines = []
                        if told:
                            told(results[-1])
                    else:
                        if words[:2] == ["@guest", "begin"]:
                            lines = []
                        lines.append(line)
            finally:
                process.kill()
                process.wait()
        for name in names[len(results):]:
            results.append(Result(name, STATUS_UNKNOWN, 0, "the machine ended or was stopped before this did:\n"
                                  + "\n".join(lines[-40:])))
            if told:
                told(results[-1])
        return results

    @staticmethod
    def _lines(process, limit):
        """The console's lines until the machine goes off or its time is over."""
        end = time.monotonic() + limit
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        rest = b""
        while time.monotonic() < end:
            if not selector.select(end - time.monotonic()):
                break
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").rstrip("\r")
        print(f"guest: the machine was stopped after {limit} s", file=sys.stderr)
