"""Programs and controllers that come, go and die at bad moments, each victim checking its own results.

usage: test_storms.py TRAPLESS VICTIM TORTURE.PY [TEST...]    TL_ROUNDS=N: so many times as many rounds
"""
import importlib.util
import os
import random
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
MORE = int(os.environ.get("TL_ROUNDS", "1"))
TIMEOUT_S = 60 * SLOW
ROUNDS, PAIRS, KILLS, PROGRAMS = 6 * MORE, 4 * MORE, 3 * MORE, 20
NICE = 15
PROBES = ["victim_one", "victim_window"]
AT_WORK = ("at work", "trapless", "is traced by")  # what a second controller may be told
FOLLOWED = ["libc.so.6:*alloc*", "libc.so.6:*write*", "libc.so.6:*fork*"]
KILL_S = 0.5


def trapless(*words):
    return subprocess.run([TRAPLESS, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)


class Storms(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("TL_SEED") or time.time())
        print(f"{self.id()}: TL_SEED={seed}", file=sys.stderr)
        self.chance = random.Random(seed)
        start = time.monotonic()
        self.addCleanup(lambda: print(f"{self.id()}: {time.monotonic() - start:.1f} s", file=sys.stderr))

    def victim(self, *mode):
        process = subprocess.Popen([VICTIM, *mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: os.nice(NICE))

        def end():
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.addCleanup(end)
        self.assertTrue(process.stdout.readline().startswith("ready"))
        return process

    def ends_well(self, process):
        self.assertEqual(torture.text_differences(process.pid), 0)
        process.stdin.write("q\n")
        process.stdin.flush()
        self.assertEqual(process.wait(TIMEOUT_S), 0)

    def again_and_again(self, *mode):
        process = self.victim(*mode)
        for _ in range(ROUNDS):
            report = torture.Count(TRAPLESS, process.pid, PROBES).stop()
            self.assertEqual(report.summary["by_method"], {"jump": 2})
            self.assertEqual(torture.text_differences(process.pid), 0)
        self.ends_well(process)

    def test_threads_that_are_made_and_end_all_the_time(self):
        self.again_and_again("storm", "3")

    def test_a_filter_that_allows_few_calls(self):
        self.again_and_again("filter")

    def test_two_controllers_at_once(self):
        """One of them works, the other is told; or they take turns."""
        process = self.victim("hammer", "2")
        for _ in range(PAIRS):
            words = [TRAPLESS, "count", "-p", str(process.pid), "-d", str(self.chance.uniform(0.05, 0.5)), *PROBES]
            pair = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True) for _ in range(2)]
            ended = [(child.communicate(timeout=TIMEOUT_S)[1], child.returncode) for child in pair]
            self.assertIn(0, [status for _, status in ended], ended)
            for errors, status in ended:
                if status:
                    self.assertEqual(status, 1, errors)
                    self.assertTrue(any(text in errors for text in AT_WORK), errors)
            self.assertEqual(torture.text_differences(process.pid), 0)
        self.ends_well(process)

    def run_and_kill(self, action, script, marker, late):
        """What a started shell wrote whose controller was killed at some moment; late: after its first line."""
        with tempfile.TemporaryFile("w+") as out:
            controller = subprocess.Popen([TRAPLESS, action, "-q", "-o", "/dev/null", "--follow", *FOLLOWED, "--", "bash", "-c",
                                           script, marker], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
            begun = time.monotonic() + TIMEOUT_S
            while late and not os.fstat(out.fileno()).st_size and time.monotonic() < begun:
                time.sleep(0.001)
            time.sleep(self.chance.uniform(0, KILL_S * SLOW))
            controller.kill()
            controller.wait()
            end = time.monotonic() + TIMEOUT_S
            while runs(marker):
                self.assertLess(time.monotonic(), end, "a program hangs")
                time.sleep(0.05)
            out.seek(0)
            return out.read()

    def test_programs_that_execute_others_outlive_controllers(self):
        numbers = " ".join(map(str, range(PROGRAMS)))
        script = f"for i in {numbers}; do (/bin/echo $i); /bin/echo -; done; echo end"
        bare = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
        whole = 0
        for action in ("count", "trace", "latency"):
            for number in range(KILLS):
                text = self.run_and_kill(action, script, f"storm-{os.getpid()}-{action}-{number}", number % 2 == 0)
                if text:  # else it was not begun
                    self.assertEqual(text, bare)
                    whole += 1
        self.assertGreater(whole, 0)


def runs(marker):
    """Whether a process has that word."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as words:
                if entry.isdigit() and marker.encode() in words.read():
                    return True
        except OSError:
            continue
    return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
