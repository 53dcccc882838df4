"""The command's own behaviour, over a session that touches no process: words, statuses, streams, signals.

usage: test_command.py TRAPLESS_OVER_A_FAKE_SESSION
"""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

TRAPLESS = os.path.abspath(sys.argv.pop(1))
TIMEOUT_S = 20
SELF = str(os.getpid())


def run(*words, **options):
    return subprocess.run([TRAPLESS, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TIMEOUT_S, check=False, **options)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


class Usage(unittest.TestCase):
    def test_wrong_words_are_status_2_and_one_line(self):
        rows = [
            [], ["frobnicate"], ["-p", SELF],
            ["count"], ["count", "f"], ["count", "-p", SELF], ["count", "-p"],
            ["count", "-p", "0", "f"], ["count", "-p", "-5", "f"], ["count", "-p", "12x", "f"],
            ["count", "-p", "", "f"], ["count", "-p", "99999999999999999999", "f"],
            ["count", "-p", SELF, "f", "--", "true"], ["count", "f", "--"],
            ["count", "-p", SELF, "-p", SELF, "f"],
            ["count", "-p", SELF, "-d", "0", "f"], ["count", "-p", SELF, "-d", "-1", "f"],
            ["count", "-p", SELF, "-d", "nan", "f"], ["count", "-p", SELF, "-d", "inf", "f"],
            ["count", "-p", SELF, "-d", "5x", "f"], ["count", "-p", SELF, "-d", "", "f"],
            ["count", "-p", SELF, "-d", "0x10", "f"], ["count", "-p", SELF, "-d", "1e300", "f"],
            ["count", "-p", SELF, "-d", "1", "-i", "2", "f"],
            ["count", "-p", SELF, "--method", "magic", "f"],
            ["count", "-p", SELF, "-q", "-v", "f"], ["count", "-p", SELF, "--frob", "f"],
            ["count", "-p", SELF, "-x", "f"], ["count", "-p", SELF, "--json=3", "f"],
            ["count", "-p", SELF, "-a", "f"],
            ["count", "-p", SELF, "badwords"],
            ["list"], ["list", "a", "b", "c"], ["list", "-p", SELF, "a", "b"],
            ["list", "-d", "1", "a"], ["list", "a", "--", "true"],
            ["explain"], ["explain", "/bin/true"], ["explain", "-p", SELF],
            ["detach"], ["detach", "-p", SELF, "x"], ["detach", "-p", SELF, "--json"],
            ["bench", "no-such-case"], ["bench", "-p", SELF],
        ]
        for row in rows:
            with self.subTest(row):
                done = run(*row)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertTrue(done.stderr.startswith("trapless"), done.stderr)

    def test_a_usage_error_empties_no_file(self):
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("kept")
            file.flush()
            self.assertEqual(run("count", "-p", SELF, "-o", file.name).returncode, 2)
            file.seek(0)
            self.assertEqual(file.read(), "kept")

    def test_every_command_has_help(self):
        self.assertEqual(run("--help").returncode, 0)
        for command in ["list", "explain", "count", "detach", "bench"]:
            for words in [[command, "--help"], [command, "-h"], [command, "x", "--help"]]:
                done = run(*words)
                self.assertEqual(done.returncode, 0, words)
                self.assertTrue(done.stdout.startswith(f"usage: trapless {command}"))
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
            self.assertIn(f"trapless {command}", run("--help").stdout)

    def test_version(self):
        for words in [["--version"], ["count", "--version"]]:
            done = run(*words)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stdout, r"^trapless \d+\.\d+\.\d+\n$")

    def test_words_and_options_mix_in_any_order(self):
        for words in [["-d", "0.1", "-p", SELF, "f"], ["f", "-p", SELF, "-d0.1"],
                      ["f", "--duration=100ms", "--pid", SELF]]:
            done = run("count", *words, env={**os.environ, "POSIXLY_CORRECT": "1"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("1 site: 1 jump, 0 refused", done.stdout)


class Status(unittest.TestCase):
    def test_statuses_follow_the_contract(self):
        rows = [(["f"], 0), (["f", "missing"], 0), (["missing"], 3), (["refused"], 3),
                (["f", "refused"], 0), (["perm"], 1), (["badwords", "f"], 2), (["stuck"], 1),
                (["ends"], 0)]
        for words, status in rows:
            with self.subTest(words):
                done = run("count", "-p", SELF, "-d", "0.1", *words)
                self.assertEqual(done.returncode, status, done.stderr)

    def test_a_missing_process_is_status_1(self):
        child = subprocess.Popen(["true"])
        child.wait()
        done = run("count", "-p", str(child.pid), "f")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"pid {child.pid}", done.stderr)

    def test_an_output_that_cannot_be_written_is_status_1(self):
        self.assertEqual(run("count", "-p", SELF, "-o", "/nowhere/x", "f").returncode, 1)
        if os.path.exists("/dev/full"):
            done = run("count", "-p", SELF, "-d", "0.1", "-o", "/dev/full", "f")
            self.assertEqual(done.returncode, 1)
            self.assertIn("No space left", done.stderr)
            self.assertIn("fake: detached", done.stderr)


class Output(unittest.TestCase):
    def test_json_is_nothing_but_objects_and_ends_with_the_summary(self):
        done = run("count", "-p", SELF, "-d", "0.1", "--json", "f", "refused", "missing")
        objects = lines(done.stdout)
        self.assertEqual([o["type"] for o in objects], ["probe", "probe", "count", "summary"])
        self.assertEqual(objects[1]["method"], "refused")
        self.assertEqual(objects[-1]["refused"], 1)
        self.assertEqual(sum(objects[-1]["refused_reasons"].values()), 1)

    def test_a_probe_closed_while_running_is_told(self):
        done = run("count", "-p", SELF, "-d", "0.4", "f", "foreign")
        self.assertIn("foreign: the bytes differ", done.stderr)
        objects = lines(run("count", "-p", SELF, "-d", "0.4", "--json", "f", "foreign").stdout)
        self.assertEqual([o["type"] for o in objects],
                         ["probe", "probe", "probe", "count", "count", "summary"])
        self.assertIn("the bytes differ", objects[2]["reason"])

    def test_intervals_print_and_add_up(self):
        done = run("count", "-p", SELF, "-d", "0.65", "-i", "0.2", "--json", "f")
        counts = [o for o in lines(done.stdout) if o["type"] == "count"]
        self.assertEqual(len(counts), 4)  # three intervals and the end
        self.assertEqual(sum(o["new"] for o in counts[:-1]), counts[-2]["hits"])
        self.assertGreaterEqual(counts[-1]["hits"], counts[-2]["hits"])

    def test_the_end_of_a_run_is_on_time(self):
        started = time.monotonic()
        run("count", "-p", SELF, "-d", "0.5", "f")
        self.assertGreaterEqual(time.monotonic() - started, 0.5)
        self.assertLess(time.monotonic() - started, 2)

    def test_quiet_silences_notes_and_escapes_stay_harmless(self):
        loud = run("count", "-p", SELF, "-d", "0.1", "noted")
        self.assertIn("first note", loud.stderr)
        self.assertIn("second \\x1b[31mnote", loud.stderr)
        quiet = run("count", "-p", SELF, "-d", "0.1", "-q", "noted")
        self.assertEqual(quiet.stderr, "fake: detached\n")

    def test_output_goes_to_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out")
            done = run("count", "-p", SELF, "-d", "0.1", "-o", path, "--json", "f")
            self.assertEqual(done.stdout, "")
            with open(path, encoding="utf-8") as file:
                self.assertEqual(lines(file.read())[-1]["type"], "summary")

    def on_terminal(self, stream, *words):
        """What the command writes on that stream, a terminal of 50 columns."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: slave}
        child = subprocess.Popen([TRAPLESS, "count", "-p", SELF, "-d", "0.1", *words], **streams)
        os.close(slave)
        text = b""
        while select.select([master], [], [], TIMEOUT_S)[0]:
            try:
                piece = os.read(master, 4096)
            except OSError:
                break
            text += piece
        os.close(master)
        self.assertEqual(child.wait(TIMEOUT_S), 0)
        return text.decode()

    def test_progress_is_for_terminals_and_is_wiped(self):
        self.assertIn("\r\033[Kplanning 1 of 3\r\033[K", self.on_terminal("stderr", "slow"))
        self.assertNotIn("matched", self.on_terminal("stderr", "f"))  # short work
        self.assertNotIn("planning", self.on_terminal("stderr", "-q", "slow"))
        self.assertNotIn("planning", run("count", "-p", SELF, "-d", "0.1", "slow").stderr)

    def test_a_terminal_line_is_cut_at_its_width(self):
        row = [line for line in self.on_terminal("stdout", "f" * 200).splitlines()
               if "ffff" in line]
        self.assertEqual([len(line) for line in row], [50])


class Ends(unittest.TestCase):
    def start(self, *words, **options):
        child = subprocess.Popen([TRAPLESS, "count", *words], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def test_signals_end_a_run_as_its_time_does(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            with self.subTest(number):
                child = self.start("-p", SELF, "--json", "f")
                self.assertEqual(json.loads(child.stdout.readline())["type"], "probe")
                child.send_signal(number)
                out, errors = child.communicate(timeout=TIMEOUT_S)
                self.assertEqual(child.returncode, 0, errors)
                self.assertEqual(lines(out)[-1]["type"], "summary")
                self.assertIn("fake: detached", errors)

    def test_a_hangup_ignored_outside_stays_ignored(self):
        child = self.start("-p", SELF, "-d", "0.7", "--json", "f",
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        child.stdout.readline()
        started = time.monotonic()
        child.send_signal(signal.SIGHUP)
        child.communicate(timeout=TIMEOUT_S)
        self.assertGreater(time.monotonic() - started, 0.4)
        self.assertEqual(child.returncode, 0)

    def test_a_closed_pipe_ends_the_run_in_order(self):
        child = self.start("-p", SELF, "-i", "0.05", "f")
        child.stdout.readline()
        child.stdout.close()
        with child.stderr:
            errors = child.stderr.read()
        self.assertEqual(child.wait(TIMEOUT_S), 1)
        self.assertEqual(errors, "fake: detached\n")

    def test_a_command_keeps_its_streams_mask_and_handlers(self):
        # The command must not inherit blocked or ignored signals from us.
        child = self.start("--json", "f", "--", "sh", "-c",
                           "grep -E 'Sig(Blk|Ign)' /proc/$$/status; echo to-stderr >&2; exit 3")
        out, errors = child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 0)
        mask = {line.split()[0]: int(line.split()[1], 16)
                for line in out.splitlines() if line.startswith("Sig")}
        ended_by = 1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGHUP - 1)
        self.assertEqual(mask["SigBlk:"], 0)
        # Python itself ignores SIGPIPE but restores it for its children.
        self.assertEqual(mask["SigIgn:"] & (ended_by | 1 << (signal.SIGPIPE - 1)), 0)
        self.assertIn("to-stderr", errors)
        self.assertIn("status 3", errors)
        self.assertEqual(json.loads(out.splitlines()[-1])["type"], "summary")

    def test_a_command_killed_by_a_signal_is_named(self):
        child = self.start("f", "--", "sh", "-c", "kill -9 $$")
        out, errors = child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 0)
        self.assertIn("signal 9", errors)
        self.assertIn("1 site", out)

    def test_words_behind_the_dashes_belong_to_the_command(self):
        child = self.start("f", "--", "sh", "-c", "echo \"$0 $@\"", "-p", "--json", "--", "-d")
        out, _ = child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 0)
        self.assertIn("-p --json -- -d\n", out)


if __name__ == "__main__":
    unittest.main(verbosity=1)
