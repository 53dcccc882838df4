"""The demo leaves nothing behind: no process, no file, whether it ends by itself or is interrupted.

usage: test_demo.py DEMO TRAPLESS
"""
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TRAPLESS = os.path.abspath(sys.argv.pop(2))
DEMO = os.path.abspath(sys.argv.pop(1))
TIMEOUT_S = 150
END_S = 5 # for a killed process to be gone
STATUS_SKIP = 77


def descendants(pid):
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            for child in map(int, children.read().split()):
                found += [child] + descendants(child)
    except FileNotFoundError:
        pass
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, True)
        # A terminal-like progress is not needed; that it has begun shows in its temporary folder.
        self.child = subprocess.Popen([sys.executable, DEMO, "--trapless", TRAPLESS, "--rounds", "1"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env={**os.environ, "TMPDIR": self.folder})
        self.addCleanup(self.child.kill)

    def wait_for_server(self):
        """Until redis-server runs; the demo's end would show on its output."""
        while True:
            for pid in descendants(self.child.pid):
                try:
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                        if comm.read().strip() == "redis-server":
                            return
                except FileNotFoundError:
                    continue
            if select.select([self.child.stdout], [], [], 0.01)[0]:
                self.fail(self.child.communicate()[1])

    def assert_nothing_left(self, pids):
        # On a busy machine the end of one that was killed may take a moment.
        end = time.monotonic() + END_S
        while any(alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        self.assertEqual(os.listdir(self.folder), [])

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                self.wait_for_server()
                pids = descendants(self.child.pid)
                self.child.send_signal(number)
                _, errors = self.child.communicate(timeout=TIMEOUT_S)
                self.assertEqual(self.child.returncode, 130, errors)
                self.assertNotIn("Traceback", errors)
                self.assert_nothing_left(pids)
            if number == signal.SIGINT:
                self.doCleanups()
                self.setUp()

    def test_to_its_end(self):
        self.wait_for_server()
        pids = descendants(self.child.pid)
        out, errors = self.child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(self.child.returncode, 0, errors + out)
        self.assertIn("0 differ", out)
        self.assertIn("runs on and answers", out)
        self.assertRegex(out, r"(?m)^  call  \(.*redis.*\)  jump, return: exit$")
        self.assertRegex(out, r"(?m)^    count [\d,]+  min \d+")
        self.assertRegex(out, r"(?m)^ +\d+\.\d{9} +\d+ +\d+  processCommand +0x[0-9a-f]+")
        self.assert_nothing_left(pids)


if __name__ == "__main__":
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        sys.exit(STATUS_SKIP)
    unittest.main(verbosity=1)
