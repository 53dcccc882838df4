"""What the tests of returns, children and libraries share: programs run bare and probed, what they tell
(told.h), what the command reports, and the bytes of a process beside those of its files."""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

SLOW = int(os.environ.get("TL_SLOW", "1"))  # how many times slower than usual this machine is
TIMEOUT_S = 120 * SLOW
ROOT = os.geteuid() == 0
KERNEL = ROOT and os.path.exists("/sys/bus/event_source/devices/uprobe")
TOLD = {"expect", "follow", "moved", "unwound", "ret", "args", "inside", "outside"}


# What the command says where a thread could not wait long enough: counts are not exact then, and that is told.
# A program waits a second for it at most, and not longer on a slow machine.
MISSED = ("hits there may be missing", "earlier hits are missing", "not probed:", "some are not counted")
# ... and what it must not say of any program here, however late it is.
NEVER = ("lies too far from any place",)
MISSED_SHOWN = 1000  # characters of what was told
PATIENCE_S = 60  # how long runs may be spoiled so, on a busy machine


class Told:
    """A victim's lines: results, and what probes must have seen."""

    def __init__(self, text):
        self.results, self.entries, self.returns, self.values, self.args = [], {}, {}, {}, {}
        self.family_entries, self.family_returns, self.moved, self.unwound = {}, {}, {}, {}
        self.inside, self.outside = {}, {}
        for line in text.splitlines():
            kind, *words = line.split(" ")
            if kind not in TOLD:
                self.results.append(line)
                continue
            name, *numbers = words[0], *map(int, words[1:])
            if kind in ("expect", "follow"):
                self.entries[name], self.returns[name] = numbers[:2]
                self.family_entries[name], self.family_returns[name] = numbers[-2:]
            elif kind == "ret":
                self.values.setdefault(name, []).append(numbers)
            elif kind == "args":
                self.args.setdefault(name, []).append(numbers)
            elif kind in ("moved", "unwound"):
                getattr(self, kind)[name] = numbers[0]
            else:
                getattr(self, kind)[name] = numbers


class Report:
    """The JSON lines of a run."""

    def __init__(self, text):
        objects = [json.loads(line) for line in text.splitlines()]
        self.probes = {o["probe"]: o for o in objects if o["type"] == "probe"}
        self.counts = {o["probe"]: o for o in objects if o["type"] == "count"}
        self.events = [o for o in objects if o["type"] == "event"]
        self.latencies = {o["probe"]: o for o in objects if o["type"] == "latency"}
        self.summary = objects[-1] if objects and objects[-1]["type"] == "summary" else None

    def find(self, table, kind, function):
        """Values of the probes of that function; an entry of kind uprobe or uretprobe."""
        return [value for probe, value in table.items()
                if probe.split(":", 1)[0] == kind and probe.rsplit(":", 1)[1] == function]

    def one(self, table, kind, function):
        found = self.find(table, kind, function)
        assert len(found) == 1, f"{kind} {function}: {len(found)} of {sorted(table)}"
        return found[0]

    def method(self, kind, function):
        return self.one(self.probes, kind, function)["method"]

    def hits(self, kind, function):
        return self.one(self.counts, kind, function)["hits"]

    def dropped(self, kind, function):
        return self.one(self.counts, kind, function)["dropped"]

    def events_of(self, kind, function):
        return [e for e in self.events
                if e["probe"].split(":", 1)[0] == kind and e["probe"].rsplit(":", 1)[1] == function]


def run(*words, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **options)


def returns_of(file, *functions):
    return [f"uretprobe:{file}:{function}" for function in functions]


def text_differences(pid):
    """How many bytes of the executable file mappings differ from their files."""
    different = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            fields = line.split(None, 5)
            if len(fields) < 6 or "x" not in fields[1] or not fields[5].startswith("/"):
                continue
            if fields[5].startswith("/memfd:"):
                continue
            start, end = (int(part, 16) for part in fields[0].split("-"))
            with open(fields[5].strip(), "rb") as file:
                file.seek(int(fields[2], 16))
                want = file.read(end - start)
            memory.seek(start)
            have = memory.read(len(want))
            if have != want:
                different += sum(a != b for a, b in zip(have, want))
    return different


class Case(unittest.TestCase):
    trapless = None  # set by the test program
    bare_runs = {}  # of this process

    def bare(self, command):
        """What the program tells without probes: the same in each run, so it is run once."""
        command = tuple(command)
        if command not in self.bare_runs:
            done = run(*command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.bare_runs[command] = Told(done.stdout)
        return self.bare_runs[command]

    def launched(self, action, command, probes, *words, status=0, **options):
        """(what the program told, report, standard error) of a probed run."""
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            done = run(self.trapless, action, "--json", "-o", out.name, *words, *probes, "--", *command,
                       **options)
            self.assertEqual(done.returncode, status, done.stderr[-2000:])
            return Told(done.stdout), Report(out.read()), done.stderr

    def same(self, action, command, probes, *words):
        """As launched(), and the results are those of a bare run."""
        plain = self.bare(command)
        told, report, errors = self.launched(action, command, probes, *words)
        self.assertEqual(told.results, plain.results)
        self.assertIsNotNone(report.summary, errors)
        return told, report

    def exact(self, action, command, probes, *words):
        """As same(), of a run in which nothing was missed, or else it would have been told."""
        plain = self.bare(command)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            told, report, errors = self.launched(action, command, probes, *words)
            self.assertEqual(told.results, plain.results)
            self.assertIsNotNone(report.summary, errors)
            if not self.was_missed(errors):
                return told, report
        return self.missed_always(errors)

    def was_missed(self, errors):
        for text in NEVER:
            self.assertNotIn(text, errors)
        return any(text in errors for text in MISSED)

    def missed_always(self, errors):
        why = f"something was missed, and told, in each run of {PATIENCE_S} s: {errors[-MISSED_SHOWN:]}"
        if SLOW > 1:
            self.skipTest("too slow here: " + why)
        self.fail(why)

    def child(self, *words, **options):
        """A process that is ended with the test."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1, **options}
        child = subprocess.Popen(words, **options)

        def end():
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        self.addCleanup(end)
        return child

    def attached(self, action, pid, probes, *words):
        """The command at work on a process: returned once the probes are placed."""
        out = tempfile.NamedTemporaryFile("r", suffix=".json")
        self.addCleanup(out.close)
        command = self.child(self.trapless, action, "-p", str(pid), "--json", "-o", out.name, *words, *probes,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        command.out = out
        self.until(lambda: '"type":"probe"' in self.read(out) or command.poll() is not None)
        if command.poll() is not None:
            self.fail(command.stderr.read())
        return command

    @staticmethod
    def read(file):
        file.seek(0)
        return file.read()

    def ended(self, command):
        """Ends attached(); its report."""
        command.send_signal(signal.SIGINT)
        errors = command.communicate(timeout=TIMEOUT_S)[1]
        self.assertEqual(command.returncode, 0, errors)
        report = Report(self.read(command.out))
        report.errors, report.missed = errors, self.was_missed(errors)
        return report

    def patiently(self, attempt):
        """The report of an attempt in which nothing was missed, or else it would have been told."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            report = attempt()
            if not report.missed:
                return report
        return self.missed_always(report.errors)

    def until(self, true, timeout_s=TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while not true():
            self.assertLess(time.monotonic(), deadline, "it never happened")
            time.sleep(0.001)  # a look a millisecond, not a wait for a time
