"""The tests of a cross build, run in a guest at the same paths as here.

Meson knows each test's command, environment and files; they are taken from it, so that a test is described
once. Names are TAP lines, which tools/check.py counts one by one.
"""
import glob
import json
import os
import shlex
import subprocess
import sys

SKIPPED = 77
OUTPUT_MAX = 6000  # characters shown of a failed test
PYTHON = "/usr/bin/python3"


class Tests:
    """What meson says of the tests of one build folder."""

    def __init__(self, folder):
        self.folder = folder
        self.source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        told = self._read("--targets", "--tests")
        self.targets = {target["id"]: target["filename"] for target in told["targets"]}
        self.tests = {test["name"]: test for test in told["tests"]}

    def _read(self, *what):
        done = subprocess.run(["meson", "introspect", "--force-object-output", self.folder, *what], stdout=subprocess.PIPE,
                              text=True, check=False)
        if done.returncode:
            raise SystemExit(f"guest: meson introspect {self.folder} failed: {done.stdout}")
        return json.loads(done.stdout)

    def of_suites(self, suites):
        wanted = {f"trapless:{suite}" for suite in suites}
        return [name for name, test in self.tests.items() if wanted & set(test["suite"])]

    def files(self, name):
        """What the test needs of this machine: words of its command and what it depends on."""
        test = self.tests[name]
        words = [word for word in test["cmd"][1:] if word.startswith("/")] + list(test["env"].values())
        if not is_python(test["cmd"][0]):
            words.append(test["cmd"][0])
        for target in test["depends"]:
            words += self.targets.get(target, [])
        found = {word for word in words if os.path.isfile(word)}
        for word in sorted(found):
            if word.endswith(".py"):
                found |= set(glob.glob(os.path.dirname(os.path.dirname(word)) + "/*/*.py"))  # they import each other
        return sorted(found)

    def job(self, name, only=()):
        """The shell text that runs it in the guest; only: names of parts of it, all without."""
        test = self.tests[name]
        words = [PYTHON if is_python(test["cmd"][0]) else test["cmd"][0], *test["cmd"][1:]]
        if is_python(test["cmd"][0]):
            words += only
        words = [os.path.normpath(word) if word.startswith("/") else word for word in words]  # folders may be missing
        lines = [f"export {key}={shlex.quote(value)}" for key, value in test["env"].items()]
        lines += [f"export TL_TEST={shlex.quote(word)}" for word in only]
        lines += [f"mkdir -p {shlex.quote(self.folder)} && cd {shlex.quote(self.folder)} || exit 1",
                  "exec " + " ".join(shlex.quote(word) for word in words)]
        return "\n".join(lines)


def is_python(program):
    return os.path.basename(program).startswith("python")


class Tap:
    """Says how each job went, as it ends."""

    def __init__(self, count):
        self.number, self.failed = 0, 0
        print(f"1..{count}", flush=True)

    def __call__(self, result):
        self.number += 1
        bad = result.status not in (0, SKIPPED)
        self.failed += bad
        note = " # SKIP" if result.status == SKIPPED else ""
        print(f"{'not ok' if bad else 'ok'} {self.number} - {result.name} {result.seconds:.2f} s{note}", flush=True)
        if bad:
            print(f"# --- {result.name}: status {result.status}")
            for line in result.output[-OUTPUT_MAX:].splitlines():
                print("# " + line)
            sys.stdout.flush()
