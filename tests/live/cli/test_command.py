"""The command's own behaviour, over a session that touches no process: words, statuses, streams, signals.

usage: test_command.py TRAPLESS_OVER_A_FAKE_SESSION
"""
import fcntl
import json
import os
import pty
import select
import shutil
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
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN: # as nohup leaves it, to all that we start
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
            ["trace"], ["trace", "f"], ["trace", "-p", SELF], ["trace", "-p", SELF, "-i", "1", "f"],
            ["trace", "-p", SELF, "-d", "x", "f"], ["trace", "-p", SELF, "badwords"],
            ["trace", "-p", SELF, "--ring-events", "0", "f"],
            ["trace", "-p", SELF, "--ring-events", "1048577", "f"],
            ["count", "-p", SELF, "--ring-events", "64", "f"],
            ["latency"], ["latency", "f"], ["latency", "-p", SELF],
            ["latency", "-p", SELF, "-d", "1", "-i", "2", "f"],
            ["count", "-p", SELF, "-f", "--no-follow", "f"],
            ["count", "-p", SELF, "--return", "f"], ["count", "-p", SELF, "--return", "auto", "f"],
            ["count", "-p", SELF, "--return", "exit", "--return", "exit", "f"],
            ["count", "-p", SELF, "--method", "", "f"], ["count", "-p", SELF, "--follow=1", "f"],
            ["count", "-p", SELF, "--probes"], ["count", "-p", SELF, "--probes", "/dev/null"],
            ["list", "-f", "x"], ["explain", "-p", SELF, "--probes", "x", "f"],
            ["detach", "-p", SELF, "--allow-traps"],
        ]
        for row in rows:
            with self.subTest(row):
                done = run(*row)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertTrue(done.stderr.startswith("trapless"), done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "needs two users")
    def test_a_file_that_lends_its_rights_does_nothing(self):
        nobody = 65534
        lends = {"setuid": lambda path: os.chmod(path, 0o4755), "setgid": lambda path: os.chmod(path, 0o2755),
                 # struct vfs_cap_data of linux/capability.h: version 2, effective; permitted: CAP_SYS_PTRACE.
                 "capabilities": lambda path: os.setxattr(path, "security.capability",
                                                          struct.pack("<5I", 0x02000001, 1 << 19, 0, 0, 0)),
                 "nothing": lambda path: None}
        for name, lend in lends.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                os.chmod(folder, 0o755)
                path = shutil.copy(TRAPLESS, os.path.join(folder, "trapless"))
                lend(path)
                for words in (["count", "-p", SELF, "f"], ["list", "/bin/true"], ["detach", "-p", SELF]):
                    done = subprocess.run([path, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                          timeout=TIMEOUT_S, check=False, user=nobody, group=nobody, extra_groups=[])
                    self.assertEqual("its file lends its rights" in done.stderr, name != "nothing", done.stderr)
                    if name != "nothing":
                        self.assertEqual((done.returncode, done.stdout), (1, ""))

    def test_a_usage_error_empties_no_file(self):
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("kept")
            file.flush()
            self.assertEqual(run("count", "-p", SELF, "-o", file.name).returncode, 2)
            file.seek(0)
            self.assertEqual(file.read(), "kept")

    def test_every_command_has_help(self):
        self.assertEqual(run("--help").returncode, 0)
        for command in ["list", "explain", "count", "trace", "latency", "detach", "bench"]:
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
                (["ends"], 0), (["awaited"], 3)]
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
        self.assertEqual(loud.stderr.count("first note"), 1)
        self.assertLess(loud.stderr.index("late note"), loud.stderr.index("fake: detached"))
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


class Options(unittest.TestCase):
    def said(self, *words):
        """What the session was asked for: {name: number}."""
        done = run(*words)
        told = [line for line in done.stderr.splitlines() if line.startswith("fake: method")]
        self.assertEqual(len(told), 1, done.stderr)
        numbers = told[0].removeprefix("fake: ").split()
        return dict(zip(numbers[::2], map(int, numbers[1::2])))

    def test_each_reaches_the_session(self):
        target = ["-p", SELF, "-d", "0.05", "words"]
        rows = [
            ("count", [], {"method": 0, "mode": 0, "return": 0, "follow": 0, "traps": 0, "ring": 0}),
            ("trace", [], {"mode": 1}), ("latency", [], {"mode": 2}),
            ("trace", ["--ring-events", "1048576"], {"ring": 1048576}),
            ("count", ["--allow-traps"], {"traps": 1}), ("latency", ["--return", "exit"], {"return": 1}),
            ("trace", ["--return", "trampoline"], {"return": 2}),
        ] + [(command, ["--method", method], {"method": i})
             for i, method in enumerate(["auto", "jump", "kernel", "simulate", "slot", "step"])
             for command in ["count", "trace", "latency"]]
        for command, words, wanted in rows:
            with self.subTest([command, *words]):
                said = self.said(command, *target, *words)
                self.assertEqual({key: said[key] for key in wanted}, wanted)

    def test_a_started_command_is_followed_and_a_process_is_not(self):
        rows = [([], 0, 1), (["-f"], 1, 1), (["--follow"], 1, 1), (["--no-follow"], 0, 0)]
        for words, process, started in rows:
            for command in ["count", "trace", "latency"]:
                with self.subTest([command, *words]):
                    self.assertEqual(self.said(command, "-p", SELF, "-d", "0.05", *words,
                                               "words")["follow"], process)
                    self.assertEqual(self.said(command, *words, "words", "--", "true")["follow"],
                                     started)

    def test_explain_plans_returns_as_they_would_be_probed(self):
        said = self.said("explain", "-p", SELF, "--return", "trampoline", "--allow-traps", "words")
        self.assertEqual((said["return"], said["traps"]), (2, 1))
        done = run("explain", "-p", SELF, "uretprobe:x:f")
        self.assertIn("    return: exit, 3 places", done.stdout.splitlines())
        site = lines(run("explain", "-p", SELF, "--json", "uretprobe:x:f").stdout)[0]
        self.assertEqual((site["return_way"], site["exits"]), ("exit", 3))


class ProbesFile(unittest.TestCase):
    TEXT = "# the hot ones\n\n  one \t\r\ntwo # behind a blank\n#off\na#b\nlast"

    def probes(self, *words, text=TEXT, **options):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            done = run("count", "-p", SELF, "-d", "0.05", "--json", "--probes", file.name, *words,
                       **options)
        return done, [o["probe"] for o in lines(done.stdout) if o["type"] == "probe"]

    def test_lines_are_probes_behind_those_of_the_command_line(self):
        self.assertEqual(self.probes()[1], ["one", "two", "a#b", "last"])
        self.assertEqual(self.probes("given")[1], ["given", "one", "two", "a#b", "last"])

    def test_standard_input_is_a_file_too(self):
        for command in ["count", "trace", "latency"]:
            done = subprocess.run([TRAPLESS, command, "-p", SELF, "-d", "0.05", "--json", "--probes", "-"],
                                  input="one\ntwo\n", capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([o["probe"] for o in lines(done.stdout) if o["type"] == "probe"],
                             ["one", "two"])

    def test_what_is_no_list_is_told_and_nothing_is_attached(self):
        for text, status in [("", 2), ("# nothing\n", 2), ("a\0b\n", 2)]:
            with self.subTest(text):
                done, probes = self.probes(text=text)
                self.assertEqual((done.returncode, probes), (status, []))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = run("count", "-p", SELF, "--probes", "/nowhere/x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/x", done.stderr)

    def test_many_that_match_nothing_share_a_note(self):
        text = "one\n" + "".join(f"none{i}\n" for i in range(5000))
        done, probes = self.probes(text=text)
        self.assertEqual((done.returncode, probes), (0, ["one"]))
        self.assertIn("and 4980 more matched nothing", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 22)
        self.assertIn("none4999", self.probes("-v", text=text)[0].stderr)


class Trace(unittest.TestCase):
    def test_json_events_keep_every_bit(self):
        done = run("trace", "-p", SELF, "-d", "0.1", "--json", "f", "uretprobe:x:g", "refused")
        self.assertEqual(done.returncode, 0, done.stderr)
        objects = lines(done.stdout)
        events = [o for o in objects if o["type"] == "event"]
        self.assertEqual(list(events[0]), ["type", "probe", "ts_ns", "pid", "tid", "args"])
        self.assertEqual(events[0]["args"], [2**64 - 1, 1, 2**63, 0, 255, 6])
        self.assertEqual(list(events[1]), ["type", "probe", "ts_ns", "pid", "tid", "ret"])
        self.assertEqual((events[1]["probe"], events[1]["ret"]), ("uretprobe:x:g", 2**64 - 1))
        self.assertEqual([o["ts_ns"] for o in events],
                         list(range(10**18 + 1, 10**18 + 1 + len(events))))
        rest = [o["type"] for o in objects if o["type"] != "event"]
        self.assertEqual(rest, ["probe"] * 3 + ["count"] * 2 + ["summary"])

    def test_text_has_columns_and_ends_with_what_was_dropped(self):
        done = run("trace", "-p", SELF, "-d", "0.1", "-q", "f", "uretprobe:x:g", "flood")
        rows = done.stdout.splitlines()
        self.assertEqual(rows[0].split()[:5], ["time", "s", "pid", "tid", "probe"])
        self.assertEqual(rows[1].split()[1:], ["41", "42", "f", "0xffffffffffffffff", "0x1",
                                               "0x8000000000000000", "0x0", "0xff", "0x6"])
        self.assertEqual(rows[2].split()[1:], ["41", "42", "uretprobe:x:g", "=", "0xffffffffffffffff"])
        self.assertEqual(rows[4].split()[2], "-")  # a thread that is not known
        self.assertRegex(rows[-2], r"^dropped 7 of [\d,]+ events of flood$")
        self.assertIn("3 sites", rows[-1])

    def test_events_come_while_it_runs_and_to_the_last(self):
        child = subprocess.Popen([TRAPLESS, "trace", "-p", SELF, "--json", "f"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        stamps = [json.loads(child.stdout.readline()).get("ts_ns") for _ in range(3)][1:]
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=TIMEOUT_S)
        stamps += [o["ts_ns"] for o in lines(out) if o["type"] == "event"]
        self.assertEqual(stamps, list(range(10**18 + 1, 10**18 + 1 + len(stamps))))

    def test_a_ring_that_makes_no_sense_ends_it_in_order(self):
        for command in ["trace", "latency"]:
            done = run(command, "-p", SELF, "-d", "0.3", "broken")
            self.assertEqual(done.returncode, 1)
            self.assertIn("makes no sense", done.stderr)
            self.assertIn("fake: detached", done.stderr)

    def test_probes_of_a_library_that_came_are_named(self):
        done = run("trace", "-p", SELF, "-d", "0.4", "--json", "late")
        objects = lines(done.stdout)
        self.assertEqual([o["probe"] for o in objects if o["type"] == "probe"], ["late", "arrived"])
        self.assertIn("arrived", [o["probe"] for o in objects if o["type"] == "event"])


class SlowReader(unittest.TestCase):
    """Nobody reads the pipe: the run looks after its target all the same, and ends when told."""

    def start(self, *words):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        child = subprocess.Popen([TRAPLESS, *words], stdin=subprocess.DEVNULL, stdout=write,
                                 stderr=subprocess.PIPE, text=True)
        os.close(write)
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child, read

    def test_the_target_is_let_go_on_time(self):
        for words in [["trace", "-p", SELF, "-d", "0.5", "flood"],
                      ["trace", "-p", SELF, "-d", "0.5", "--json", "flood"],
                      ["count", "-p", SELF, "-d", "0.5", "-i", "0.001", "f" * 4000]]:
            with self.subTest(words):
                started = time.monotonic()
                child, _ = self.start(*words)
                self.assertEqual(child.stderr.readline(), "fake: detached\n")
                self.assertLess(time.monotonic() - started, 5)
                self.assertIsNone(child.poll())  # it still has lines to write

    def test_a_signal_detaches_and_another_one_ends_it(self):
        child, read = self.start("trace", "-p", SELF, "flood")
        os.read(read, 1)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.stderr.readline(), "fake: detached\n")
        deadline = time.monotonic() + TIMEOUT_S
        while child.poll() is None and time.monotonic() < deadline:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        self.assertEqual(child.returncode, -signal.SIGINT)

    def test_lines_are_whole_when_it_is_read_after_all(self):
        child, read = self.start("trace", "-p", SELF, "-d", "0.5", "--json", "flood")
        self.assertEqual(child.stderr.readline(), "fake: detached\n")
        with open(os.dup(read), encoding="utf-8") as stream:
            objects = [json.loads(line) for line in stream]
        self.assertEqual(child.wait(TIMEOUT_S), 0)
        events = [o for o in objects if o["type"] == "event"]
        self.assertEqual(events[-1]["ts_ns"] - events[0]["ts_ns"], len(events) - 1)
        self.assertLess(len(events), 200000)  # what the rings hold is left there, not piled up here
        self.assertEqual(objects[-1]["type"], "summary")


class Latency(unittest.TestCase):
    KEYS = ["type", "probe", "count", "min_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns",
            "max_ns", "buckets"]

    def test_json_holds_the_contract(self):
        objects = lines(run("latency", "-p", SELF, "-d", "0.1", "--json", "f", "quiet", "refused").stdout)
        self.assertEqual([o["type"] for o in objects],
                         ["probe"] * 3 + ["latency"] * 2 + ["summary"])
        called, quiet = objects[3:5]
        self.assertEqual(list(called)[:len(self.KEYS)], self.KEYS)
        self.assertEqual(called["buckets"], [[96, 99, 10], [128, 131, 30], [1024, 1055, 5]])
        self.assertEqual(called["count"], sum(n for _, _, n in called["buckets"]))
        self.assertEqual((quiet["count"], quiet["p99_ns"], quiet["buckets"]), (0, None, []))

    def test_text_is_a_histogram_and_idle_functions_share_a_line(self):
        done = run("latency", "-p", SELF, "-d", "0.1", "f", "quiet")
        self.assertRegex(done.stdout, r"(?m)^  count 45  min 97 ns  mean 222 ns  p50 130 ns  p90 1.04 us")
        self.assertRegex(done.stdout, r"(?m)^ +128 ns +131 ns +30 +66.67 %  #{40}$")
        self.assertIn("1 function did not return meanwhile", done.stdout)
        self.assertIn("quiet  (/fake)", run("latency", "-p", SELF, "-d", "0.1", "-v", "f", "quiet").stdout)
        self.assertIn("quiet  (/fake)", run("latency", "-p", SELF, "-d", "0.1", "quiet").stdout)

    def test_what_took_most_time_comes_first_in_text(self):
        words = ["latency", "-p", SELF, "-d", "0.1", "f", "quiet", "longer", "g"]
        names = [line.split()[0] for line in run(*words).stdout.splitlines() if "(/fake)" in line]
        self.assertEqual(names, ["longer", "f", "g"])
        names = [o["probe"] for o in lines(run(*words, "--json").stdout) if o["type"] == "latency"]
        self.assertEqual(names, ["f", "quiet", "longer", "g"])

    def test_intervals_print_what_there_is_so_far(self):
        done = run("latency", "-p", SELF, "-d", "0.5", "-i", "0.2", "--json", "f")
        prints = [o for o in lines(done.stdout) if o["type"] == "latency"]
        self.assertEqual(len(prints), 3)
        self.assertEqual([o.get("new") for o in prints], [45, 0, None])


class Beside(unittest.TestCase):
    def test_list_and_detach_ask_the_library(self):
        done = run("list", "-p", SELF, "--json")
        self.assertEqual(lines(done.stdout)[0]["names"], ["f"])
        self.assertEqual(done.stderr, "trapless: a note\n")
        self.assertEqual(run("list", "-p", SELF, "missing").returncode, 3)
        self.assertIn("2 sites put back", run("detach", "-p", SELF).stdout)
        self.assertIn("nothing was left behind", run("detach", "-p", "1").stdout)


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
        # Builtins only: a shell blocks signals itself while it starts a program.
        child = self.start("--json", "f", "--", "sh", "-c",
                           "while read -r line; do case $line in SigBlk*|SigIgn*) echo $line; "
                           "esac; done "
                           "</proc/self/status; echo to-stderr >&2; exit 3")
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
