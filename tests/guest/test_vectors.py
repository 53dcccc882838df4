"""The thread that makes a controller's system calls has vectors in use, which a call throws away.

usage: test_vectors.py TRAPLESS VECTORS TORTURE.PY
"""
import importlib.util
import os
import signal
import subprocess
import sys
import unittest

SPEC = importlib.util.spec_from_file_location("torture", sys.argv.pop(3))
torture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(torture)
PROGRAM = os.path.abspath(sys.argv.pop(2))
TRAPLESS = os.path.abspath(sys.argv.pop(1))
TIMEOUT_S = 30 * int(os.environ.get("TL_SLOW", "1"))
ROUNDS = 4
PROBE = "vectors_round"


class Vectors(unittest.TestCase):
    def setUp(self):
        self.process = subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        if self.process.stdout.readline().strip() == "none":
            self.skipTest("this processor has no such vectors")

    def as_in_its_file(self):
        self.assertIsNone(self.process.poll(), "it has ended")
        self.assertEqual(torture.text_differences(self.process.pid), 0)

    def ends_well(self, calls_min):
        self.process.send_signal(signal.SIGTERM)
        words = self.process.stdout.readline().split()
        self.assertEqual(self.process.wait(TIMEOUT_S), 0)
        self.assertEqual(words[::2], ["rounds", "wrong"])
        self.assertGreaterEqual(int(words[1]), calls_min)
        self.assertEqual(int(words[3]), 0)

    def test_a_borrowed_thread_keeps_its_vectors(self):
        calls = 0
        for _ in range(ROUNDS):
            report = torture.Count(TRAPLESS, self.process.pid, [PROBE]).stop()
            self.assertEqual(report.summary["by_method"], {"jump": 1})
            calls += report.of(PROBE)
            self.as_in_its_file()
        self.ends_well(calls)

    def test_a_dead_controllers_work_is_put_back_by_such_a_thread(self):
        for _ in range(ROUNDS):
            controller = torture.Count(TRAPLESS, self.process.pid, [PROBE]).process
            controller.kill()
            controller.communicate()
            done = subprocess.run([TRAPLESS, "detach", "-p", str(self.process.pid)], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.as_in_its_file()
        self.ends_well(1)


if __name__ == "__main__":
    unittest.main(verbosity=1)
