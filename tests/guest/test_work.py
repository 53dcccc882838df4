"""A guest's short form of churn and torture: the command on busy programs, again and again, and with every function
of a program and of its C library probed at once. One process runs all, since a Python takes seconds to start there.

usage: test_work.py TRAPLESS VICTIM TORTURE.PY [TEST...]
"""
import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SPEC = importlib.util.spec_from_file_location("torture", sys.argv.pop(3))
torture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(torture)
VICTIM = os.path.abspath(sys.argv.pop(2))
TRAPLESS = os.path.abspath(sys.argv.pop(1))
SLOW = int(os.environ.get("TL_SLOW", "1"))
TIMEOUT_S = 30 * SLOW
THREADS = 4
NICE = 15
ROUNDS, KILLS = 50, 8
EXACT_CALLS = 200000  # by each thread: VICTIM_CALLS of tests/live/attach/victim.h
WORK = 30  # rounds of all of redis' commands
ROWS = 100
KNOWN = ["sqlite3_step", "sqlite3_prepare_v2"]
# Functions, recursion, arrays, patterns, arithmetic, an error; no children, which the kernel does not count.
SHELL_SCRIPT = """
fib() { local n=$1; if (( n < 2 )); then r=$n; else fib $((n - 1)); local a=$r; fib $((n - 2)); r=$((a + r)); fi; }
fib 9; echo "$r"
declare -A seen
for word in one two three two one; do seen[$word]=$(( ${seen[$word]:-0} + 1 )); done
for word in one two three; do echo "$word ${seen[$word]} ${word/e/E} ${word^^}"; done
case abc.txt in *.c) echo c;; *.txt) echo text;; esac
cd /nowhere 2>/dev/null || echo "no such place"
printf '%s-%04d\\n' a 7 b 8; [[ abc =~ ^a(.)c$ ]] && echo "${BASH_REMATCH[1]}"
"""
SHELL_KNOWN = ["execute_command_internal", "evalexp"]
SHELL_PROBES_MIN = 1000
PROBES = ["victim_one", "victim_window"]
NOBODY = 65534
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


def trapless(*words, **options):
    return subprocess.run([TRAPLESS, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False, **options)


def until(true, what):
    end = time.monotonic() + TIMEOUT_S
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not in {TIMEOUT_S} s: {what}")
        time.sleep(0.01)


@contextlib.contextmanager
def victim(*mode, **options):
    """The live tests' victim, which checks its own results; told to end, it must have found them right. It leaves
    processors to the command, else an emulated machine does little else than its loop."""
    process = subprocess.Popen([VICTIM, *mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               preexec_fn=lambda: os.nice(NICE), **options)
    try:
        assert process.stdout.readline().startswith("ready")
        yield process
        process.communicate("q\n", timeout=TIMEOUT_S)
        assert process.returncode == 0, f"the victim ended with {process.returncode}"
    finally:
        process.kill()
        process.wait()


class Work(unittest.TestCase):
    def setUp(self):
        start = time.monotonic()
        self.addCleanup(lambda: print(f"{self.id()}: {time.monotonic() - start:.1f} s", file=sys.stderr))

    def assert_untouched(self, pid):
        self.assertEqual(torture.text_differences(pid), 0)

    def test_every_call_of_each_thread_is_counted(self):
        with victim("exact", str(THREADS)) as process:
            count = torture.Count(TRAPLESS, process.pid, PROBES)
            process.stdin.write("go\n")
            process.stdin.flush()
            self.assertTrue(process.stdout.readline().startswith("ready"))
            report = count.stop()
            self.assertEqual(report.summary["by_method"], {"jump": 2})
            for probe in PROBES:
                self.assertEqual(report.of(probe), THREADS * EXACT_CALLS)
            self.assert_untouched(process.pid)

    def test_a_busy_program_is_attached_to_again_and_again(self):
        with victim("hammer", str(THREADS)) as process:
            mappings = []
            for _ in range(ROUNDS):
                report = torture.Count(TRAPLESS, process.pid, PROBES).stop()
                self.assertEqual(report.summary["by_method"], {"jump": 2})
                mappings.append(torture.our_mappings(process.pid))
                self.assert_untouched(process.pid)
            self.assertLessEqual(max(mappings[2:]), 2 * max(mappings[:2]))

    def test_controllers_that_are_killed_leave_a_program_that_can_be_detached(self):
        seed = int(os.environ.get("TL_SEED") or time.time())
        print(f"TL_SEED={seed}", file=sys.stderr)
        chance = random.Random(seed)
        with victim("hammer", str(THREADS)) as process:
            for _ in range(KILLS):
                with subprocess.Popen([TRAPLESS, "count", "-p", str(process.pid), *PROBES], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
                    time.sleep(chance.uniform(0, 0.1 * SLOW))
                    controller.kill()
                done = trapless("detach", "-p", str(process.pid))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assert_untouched(process.pid)

    def test_breakpoints_work_where_the_kernels_uprobes_were(self):
        """Since then its uprobes' code sees each breakpoint first, and the signal comes from there."""
        def hits(method):
            report = torture.Count(TRAPLESS, process.pid, PROBES[1:], ["--method", method]).stop()
            self.assertEqual(report.summary["by_method"], {method: 1})
            self.assert_untouched(process.pid)
            return report.of(PROBES[1]) # the kernel takes no literal load
        with victim("hammer", "1") as process:
            for method in ("kernel", "slot", "step"):
                until(lambda method=method: hits(method), f"hits by {method}")

    def test_sqlite_with_every_function_of_it_and_of_libc(self):
        script, command = torture.sqlite_script(ROWS), ["sqlite3", ":memory:"]
        bare = subprocess.run(command, input=script, capture_output=True, check=True).stdout
        out, report = torture.run_counted(TRAPLESS, ["libsqlite3.so.0:*", "libc.so.6:*"], command, script)
        self.assertEqual(out, bare)
        torture.compare_with_kernel(TRAPLESS, report, "libsqlite3.so.0:", KNOWN, command, script)
        print(report.text(), file=sys.stderr)

    def test_a_shell_with_every_function_of_it(self):
        command = ["bash", "--norc", "-c", SHELL_SCRIPT]
        bare = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
        out, report = torture.run_counted(TRAPLESS, ["*"], command)
        self.assertEqual(out, bare)
        self.assertGreater(len(report.probes), SHELL_PROBES_MIN)
        torture.compare_with_kernel(TRAPLESS, report, "", SHELL_KNOWN, command, None)
        print(report.text(), file=sys.stderr)

    def test_redis_with_every_function_of_it_and_of_libc(self):
        with tempfile.TemporaryDirectory() as folder:
            server = torture.Redis(folder)
            _, expected = torture.redis_work(server, WORK)
            server.close()
            server = torture.Redis(folder)
            try:
                count = torture.Count(TRAPLESS, server.process.pid, ["*", "libc.so.6:*"])
                sent, replies = torture.redis_work(server, WORK)
                report = count.stop()
                self.assertEqual(replies, expected)
                self.assertEqual(report.of("processCommand"), sent)
                self.assert_untouched(server.process.pid)
            finally:
                server.close()
            print(report.text(), file=sys.stderr)


class Scopes(unittest.TestCase):
    """Yama's ptrace_scope for real. 3 can't be left again: it comes last."""

    def count(self, process, **options):
        done = trapless("count", "-p", str(process.pid), "-d", "0.1", *PROBES, **options)
        return done.returncode == 0, done.stderr

    def test_each_scope_allows_what_it_says(self):
        if os.environ.get("GUEST") != "1" or os.geteuid() != 0:
            self.skipTest("changes the machine")
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        with victim("hammer", "1", **other) as process:
            for scope, owner, root in ((0, True, True), (1, False, True), (2, False, True), (3, False, False)):
                with open(SCOPE, "w", encoding="ascii") as file:
                    file.write(str(scope))
                for allowed, options in ((owner, other), (root, {})):
                    done, errors = self.count(process, **options)
                    self.assertEqual(done, allowed, (scope, options, errors))
                    self.assertEqual(torture.text_differences(process.pid) if scope < 3 else 0, 0)
                    if not allowed:
                        self.assertIn(f"ptrace_scope is {scope}", errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
