"""The whole command on real processes. The target is the bench's victim: it calls what it is told.

usage: test_real.py TRAPLESS VICTIM CALLER STARTER STARTER_BARE EXAMPLE [TEST...]
"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TRAPLESS, VICTIM, CALLER, STARTER, STARTER_BARE, EXAMPLE = (os.path.abspath(word) for word in sys.argv[1:7])
del sys.argv[1:7]
TIMEOUT_S = 30 * int(os.environ.get("TL_SLOW", "1"))
CALLS = 12345
EXEC_TRIES = 10
CLOCK_SLACK_NS = 1_000_000  # of the counter's calibration
ENDS = ("clock", "fork", "forkcall")  # of the victim's list: no functions to probe
NOBODY = 65534
ROOT = os.geteuid() == 0


def run(*words, **options):
    return subprocess.run([TRAPLESS, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TIMEOUT_S, check=False, **options)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def kernel_probes_work():
    """As root on a kernel with uprobes."""
    return ROOT and os.path.exists("/sys/bus/event_source/devices/uprobe")


def text_of(pid):
    """{mapping: (bytes in memory, bytes of the file)} of all executable file mappings."""
    found = {}
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
            found[line.strip()] = (memory.read(len(want)), want)
    return found


class Victim:
    def __init__(self, program=VICTIM, **options):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1, **options)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "ready\n"

    def call(self, site, calls=CALLS):
        self.process.stdin.write(f"run {site} {calls}\n")
        answer = self.process.stdout.readline().split()
        assert answer and answer[0] == "ns", answer

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def sites():
    """The victim's cases for this processor, as the functions behind tl_site_ are named."""
    with subprocess.Popen([VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        answer = process.communicate("sites\n")[0].splitlines()[-1].split()
    return [name.replace("-", "_") for name in answer[1:] if name not in ENDS]


SITES = sites()


class Case(unittest.TestCase):
    def victim(self, **options):
        victim = Victim(**options)
        self.addCleanup(victim.end)
        return victim

    def count(self, victim, *words):
        return self.start("count", victim, *words)

    def start(self, command, victim, *words):
        child = subprocess.Popen([TRAPLESS, command, "-p", str(victim.pid), "--json", *words],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def attached(self, child, sites=1):
        probes = []
        while len(probes) < sites:
            line = child.stdout.readline()
            if not line:
                self.fail(child.stderr.read())
            probes.append(json.loads(line))
        return probes

    def end(self, child):
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 0, errors)
        return lines(out)

    def assert_text_is_the_files(self, pid):
        mappings = text_of(pid)
        self.assertTrue(mappings)
        for name, (have, want) in mappings.items():
            self.assertEqual(have, want, name)


class Count(Case):
    def counted_exactly(self, method):
        victim = self.victim()
        child = self.count(victim, "--method", method, "tl_site_*")
        # tl_site_func_helper is matched too.
        probes = self.attached(child, len(SITES) + 1)
        self.assertEqual({probe["method"] for probe in probes}, {method},
                         [probe["reason"] for probe in probes if probe["method"] != method])
        for i, site in enumerate(SITES):
            victim.call(site.replace("_", "-"), CALLS + i)
        objects = self.end(child)
        names = {probe["probe"]: probe["function"] for probe in probes}
        hits = {names[o["probe"]]: o["hits"] for o in objects if o["type"] == "count"}
        for i, site in enumerate(SITES):
            self.assertEqual(hits[f"tl_site_{site}"], CALLS + i, site)
        self.assertEqual(hits["tl_site_func_helper"], hits["tl_site_func"])
        self.assertEqual(objects[-1]["hits"], sum(hits.values()))
        self.assertEqual(objects[-1]["dropped"], 0)
        self.assertEqual(objects[-1]["by_method"], {method: len(SITES) + 1})
        self.assert_text_is_the_files(victim.pid)
        victim.call("func")

    def test_every_site_is_counted_exactly_by_jump(self):
        self.counted_exactly("jump")

    @unittest.skipUnless(kernel_probes_work(), "no kernel probes for this user here")
    def test_every_site_is_counted_exactly_by_the_kernel(self):
        self.counted_exactly("kernel")

    def test_every_site_is_counted_exactly_by_breakpoints(self):
        for method in ["slot", "step"]:
            with self.subTest(method):
                self.counted_exactly(method)

    def test_a_started_command_is_counted_from_its_first_instruction(self):
        done = subprocess.run([TRAPLESS, "count", "--json", "tl_site_push", "main", "--", VICTIM],
                              input=f"run push {CALLS}\nrun push {CALLS}\n", capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = done.stdout.splitlines()
        self.assertEqual(len([line for line in out if line.startswith("ns ")]), 2)
        objects = [json.loads(line) for line in out if line.startswith("{")]
        hits = {o["probe"].rsplit(":", 1)[1]: o["hits"] for o in objects if o["type"] == "count"}
        self.assertEqual(hits, {"tl_site_push": 2 * CALLS, "main": 1})

    def test_what_was_counted_survives_the_target(self):
        victim = self.victim()
        child = self.count(victim, "tl_site_func")
        self.attached(child)
        victim.call("func")
        victim.process.send_signal(signal.SIGKILL)
        out, errors = child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 0, errors)
        objects = lines(out)
        self.assertEqual(objects[0]["hits"], CALLS)
        self.assertEqual(objects[-1]["type"], "summary")
        self.assertIn("ended", errors)

    def test_a_killed_controller_leaves_a_running_target_and_detach_cleans_up(self):
        victim = self.victim()
        child = self.count(victim, "--method", "jump", "tl_site_func", "tl_site_push")
        self.attached(child, 2)
        victim.call("func")
        child.kill()
        child.communicate(timeout=TIMEOUT_S)
        victim.call("push")
        self.assertNotEqual(*zip(*text_of(victim.pid).values()))
        done = run("detach", "-p", str(victim.pid))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 sites put back", done.stdout)
        self.assert_text_is_the_files(victim.pid)
        victim.call("func")
        self.assertIn("nothing was left behind", run("detach", "-p", str(victim.pid)).stdout)

    def test_detach_leaves_an_untouched_process_alone(self):
        victim = self.victim()
        done = run("detach", "-p", str(victim.pid))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_text_is_the_files(victim.pid)
        victim.call("func")

    def test_a_second_controller_is_told(self):
        victim = self.victim()
        first = self.count(victim, "tl_site_func")
        self.attached(first)
        second = run("count", "-p", str(victim.pid), "-d", "0.1", "tl_site_func")
        victim.call("func")
        objects = self.end(first)
        self.assertEqual(objects[0]["hits"], CALLS)
        if second.returncode:
            self.assertEqual(second.returncode, 1)
            self.assertIn(str(victim.pid), second.stderr)
        self.assert_text_is_the_files(victim.pid)

    def test_nothing_matches_is_status_3_and_changes_nothing(self):
        victim = self.victim()
        done = run("count", "-p", str(victim.pid), "-d", "1", "no_such_function")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no_such_function", done.stderr)
        self.assert_text_is_the_files(victim.pid)


WORK = "caller_work"
RETURN = f"uretprobe:{CALLER}:{WORK}"
ALL = 2**64 - 1


class Events(Case):
    def check_calls(self, events, calls, pid=None):
        """Each call is an entry, then its return; arguments, values and times are right."""
        self.assertEqual(len(events), 2 * calls)
        for i in range(calls):
            entry, ret = events[2 * i:2 * i + 2]
            self.assertEqual(entry.get("args"), [i, 2, 3, 4, 5, ALL], (i, entry))
            self.assertEqual(ret.get("ret"), ALL - i, (i, ret))
            if pid:
                self.assertEqual((entry["pid"], ret["pid"]), (pid, pid))
                self.assertIn(entry["tid"], (pid, 0))
        times = [event["ts_ns"] for event in events]
        self.assertEqual(times, sorted(times))

    def traced(self, method, *words):
        victim = self.victim(program=CALLER)
        child = self.start("trace", victim, "--method", method, *words, WORK, RETURN)
        probes = self.attached(child, 2)
        self.assertEqual({probe["method"] for probe in probes}, {method})
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        victim.tell("call 1000")
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        objects = self.end(child)
        events = [o for o in objects if o["type"] == "event"]
        self.check_calls(events, 1000, victim.pid)
        self.assertGreater(events[0]["ts_ns"], before - CLOCK_SLACK_NS)
        self.assertLess(events[-1]["ts_ns"], after + CLOCK_SLACK_NS)
        self.assertEqual([o["hits"] for o in objects if o["type"] == "count"], [1000, 1000])
        self.assertEqual(objects[-1]["dropped"], 0)
        self.assert_text_is_the_files(victim.pid)

    def test_arguments_and_values_are_exact_by_jump(self):
        self.traced("jump")

    @unittest.skipUnless(kernel_probes_work(), "no kernel probes for this user here")
    def test_arguments_and_values_are_exact_by_the_kernel(self):
        self.traced("kernel")

    def test_hits_are_lines_and_drops(self):
        victim = self.victim(program=CALLER)
        child = self.start("trace", victim, "--ring-events", "256", WORK)
        self.attached(child)
        victim.tell("call 3000000")
        objects = self.end(child)
        events = sum(o["type"] == "event" for o in objects)
        count = [o for o in objects if o["type"] == "count"][0]
        self.assertEqual(count["hits"], 3000000)
        self.assertEqual(events + count["dropped"], count["hits"])
        self.assertGreater(count["dropped"], 0)
        self.assertGreaterEqual(events, 256)

    def test_a_trace_that_is_stopped_or_not_read_never_holds_the_target(self):
        calls = 300000
        for stopped in [True, False]:
            with self.subTest(stopped=stopped):
                victim = self.victim(program=CALLER)
                child = self.start("trace", victim, WORK)
                self.attached(child)
                if stopped:
                    child.send_signal(signal.SIGSTOP)
                for _ in range(10):
                    victim.tell(f"call {calls // 10}")  # would wait for ever
                child.send_signal(signal.SIGCONT)
                objects = self.end(child)
                events = sum(o["type"] == "event" for o in objects)
                count = [o for o in objects if o["type"] == "count"][0]
                self.assertEqual((count["hits"], events + count["dropped"]), (calls, calls))
                self.assert_text_is_the_files(victim.pid)

    def test_a_killed_trace_never_holds_the_target(self):
        victim = self.victim(program=CALLER)
        child = self.start("trace", victim, WORK, RETURN)
        self.attached(child, 2)
        child.kill()
        child.communicate(timeout=TIMEOUT_S)
        victim.tell("call 100000")
        self.assertIn("sites put back", run("detach", "-p", str(victim.pid)).stdout)
        self.assert_text_is_the_files(victim.pid)
        victim.tell("call 100")

    def test_a_started_command_is_traced_and_its_children_too(self):
        done = run("trace", "--json", WORK, RETURN, "--", CALLER, "call", "10", "fork", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [o for o in lines(done.stdout) if o["type"] == "event"]
        pids = list(dict.fromkeys(event["pid"] for event in events))
        self.assertEqual(len(pids), 2)
        self.check_calls([event for event in events if event["pid"] == pids[0]], 10)
        self.check_calls([event for event in events if event["pid"] == pids[1]], 20)
        alone = run("trace", "--json", "--no-follow", WORK, "--", CALLER, "call", "10", "fork", "20")
        self.assertEqual(sum(o["type"] == "event" for o in lines(alone.stdout)), 10)

    def test_programs_that_a_command_starts_are_counted(self):
        probe = f"{CALLER}:{WORK}"
        script = f"{CALLER} call 5; {CALLER} fork 3; exec {CALLER} call 7"
        # On a busy machine a program may not be held in time.
        for _ in range(EXEC_TRIES):
            done = run("count", "--json", probe, "--", "sh", "-c", script)
            self.assertEqual(done.returncode, 0, done.stderr)
            hits = [o["hits"] for o in lines(done.stdout) if o["type"] == "count"]
            if hits == [15]:
                break
            self.assertLess(sum(hits), 15)
        self.assertEqual(hits, [15])
        alone = run("count", "--json", "--no-follow", probe, "--", "sh", "-c", script)
        self.assertEqual(alone.returncode, 3, alone.stderr)

    def test_that_what_a_program_executes_can_not_be_followed_is_told(self):
        """Static and stripped, it has no execve that could be found: one sentence says so."""
        sentence = "programs that it executes are not followed: no function that does so is known there"
        words = ["count", "--json", f"{CALLER}:{WORK}"]
        for _ in range(EXEC_TRIES):  # as above
            named = run(*words, "--", STARTER, CALLER, "call", "5")
            self.assertEqual(named.returncode, 0, named.stderr)
            self.assertNotIn("not followed", named.stderr)
            hits = [o["hits"] for o in lines(named.stdout) if o["type"] == "count"]
            if hits == [5]:
                break
        self.assertEqual(hits, [5])
        bare = run(*words, "--", STARTER_BARE, CALLER, "call", "5")
        self.assertEqual(bare.returncode, 3, bare.stderr)
        self.assertEqual(bare.stderr.count(sentence), 1, bare.stderr)
        self.assertNotIn("not followed", run(*words, "--no-follow", "--", STARTER_BARE, CALLER, "call", "5").stderr)
        kernel = run("count", "--json", "--method", "kernel", f"{CALLER}:{WORK}", "--", CALLER, "call", "5")
        self.assertEqual("only branches tell of them" in kernel.stderr, kernel.returncode == 0, kernel.stderr)

    def test_children_of_a_process_are_counted_with_follow_only(self):
        for words, hits in [([], 5), (["-f"], 12)]:
            with self.subTest(words):
                victim = self.victim(program=CALLER)
                child = self.count(victim, *words, WORK)
                self.attached(child)
                victim.tell("call 5")
                victim.tell("fork 7")
                self.assertEqual(self.end(child)[0]["hits"], hits)
                self.assert_text_is_the_files(victim.pid)


class Latency(Case):
    def timed(self, *words):
        victim = self.victim(program=CALLER)
        child = self.start("latency", victim, *words, WORK)
        probes = self.attached(child)
        victim.tell(f"call {CALLS}")
        objects = self.end(child)
        latency = objects[0]
        self.assertEqual(latency["type"], "latency")
        self.assertEqual(latency["count"], CALLS)
        self.assertEqual(sum(n for _, _, n in latency["buckets"]), CALLS)
        self.assertEqual((latency["unpaired"], latency["lost"]), (0, 0))
        order = [latency[key] for key in ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns"]]
        self.assertEqual(order, sorted(order))
        self.assertLessEqual(latency["min_ns"], latency["mean_ns"])
        self.assertLessEqual(latency["mean_ns"], latency["max_ns"])
        self.assertLess(latency["p50_ns"], 1e6)
        self.assertEqual(probes[0]["method"], "jump")
        self.assert_text_is_the_files(victim.pid)
        return probes[0]

    def test_every_call_is_timed_by_exits(self):
        self.assertEqual(self.timed()["return_way"], "exit")

    def test_every_call_is_timed_by_a_trampoline(self):
        self.assertEqual(self.timed("--return", "trampoline")["return_way"], "trampoline")

    def test_explain_tells_how_the_return_is_probed(self):
        site = lines(run("explain", CALLER, RETURN, "--json").stdout)[0]
        self.assertEqual(site["return_way"], "exit")
        self.assertGreaterEqual(site["exits"], 1)
        self.assertIn("return: exit", run("explain", CALLER, RETURN).stdout)

    def test_the_example_times_a_running_process(self):
        victim = self.victim(program=CALLER)
        example = subprocess.Popen([EXAMPLE, str(victim.pid), WORK, "0.8"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        while example.poll() is None:
            victim.tell("call 100")
        out, errors = example.communicate()
        self.assertEqual(example.returncode, 0, errors)
        self.assertRegex(out, r"^caller_work: \d+ calls, p50 \d+ ns, p99 \d+ ns, longest \d+ ns\n$")
        self.assert_text_is_the_files(victim.pid)


class Probes(Case):
    def test_every_function_of_libc_from_a_list(self):
        victim = self.victim(program=CALLER)
        functions = lines(run("list", "-p", str(victim.pid), "--json", "libc:str*").stdout)
        names = sorted({name for o in functions for name in o["names"]})
        self.assertGreater(len(names), 50)
        done = subprocess.run([TRAPLESS, "count", "-p", str(victim.pid), "-d", "0.1", "--json", "-q",
                               "--probes", "-"], input="".join(f"libc:{name}\n" for name in names),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(lines(done.stdout)[-1]["sites"], 50)
        self.assert_text_is_the_files(victim.pid)


class Refused(Case):
    def one_sentence(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)

    def test_a_vanished_process(self):
        victim = self.victim()
        victim.end()
        self.one_sentence(run("count", "-p", str(victim.pid), "main"), str(victim.pid))

    def test_a_kernel_thread(self):
        with open("/proc/2/status", encoding="utf-8") as status:
            if "kthreadd" not in status.read():
                self.skipTest("pid 2 is no kernel thread here")
        self.one_sentence(run("count", "-p", "2", "main"), "pid 2", "kernel thread")

    def test_a_process_that_is_traced(self):
        victim = self.victim()
        libc = ctypes.CDLL(None, use_errno=True)
        seize, interrupt, detach = 0x4206, 0x4207, 17
        self.assertEqual(libc.ptrace(seize, victim.pid, 0, 0), 0)
        try:
            self.one_sentence(run("count", "-p", str(victim.pid), "main"), str(victim.pid))
        finally:
            libc.ptrace(interrupt, victim.pid, 0, 0)
            os.waitpid(victim.pid, 0)
            libc.ptrace(detach, victim.pid, 0, 0)
        victim.call("func")

    @unittest.skipUnless(ROOT, "needs two users")
    def test_another_users_process(self):
        victim = self.victim()
        done = run("count", "-p", str(victim.pid), "main", user=NOBODY, group=NOBODY,
                   extra_groups=[])
        self.one_sentence(done, str(victim.pid), "root")
        self.assert_text_is_the_files(victim.pid)

    @unittest.skipUnless(ROOT, "needs two users")
    def test_an_unprivileged_user_counts_in_his_own_process(self):
        victim = self.victim(user=NOBODY, group=NOBODY, extra_groups=[])
        jump = run("count", "-p", str(victim.pid), "-d", "0.2", "tl_site_func", user=NOBODY,
                   group=NOBODY, extra_groups=[])
        self.assertEqual(jump.returncode, 0, jump.stderr)
        self.assertIn("1 jump", jump.stdout)
        kernel = run("count", "-p", str(victim.pid), "-d", "0.2", "--method", "kernel",
                     "tl_site_func", user=NOBODY, group=NOBODY, extra_groups=[])
        self.assertIn(kernel.returncode, (1, 3), kernel.stderr)
        self.assertIn("CAP_BPF", kernel.stderr)
        victim.call("func")
        self.assert_text_is_the_files(victim.pid)


class Look(Case):
    def test_list_of_a_file_and_of_a_process_agree(self):
        victim = self.victim()
        of_file = lines(run("list", VICTIM, "tl_site_*", "--json").stdout)
        of_process = lines(run("list", "-p", str(victim.pid), "tl_site_*", "--json").stdout)
        self.assertEqual({o["type"] for o in of_file}, {"function"})
        names = {name for o in of_file for name in o["names"]}
        self.assertEqual(names, {f"tl_site_{site}" for site in SITES} | {"tl_site_func_helper"})
        self.assertEqual(names, {name for o in of_process for name in o["names"]})
        biases = {int(p["addr"], 16) - int(f["addr"], 16) for p, f in zip(of_process, of_file)}
        self.assertEqual(len(biases), 1)
        sizes = {o["names"][0]: o["size"] for o in of_file}
        if "short" in SITES:
            self.assertEqual(sizes["tl_site_short"], 3)

    def test_list_without_a_pattern_holds_every_module(self):
        victim = self.victim()
        done = run("list", "-p", str(victim.pid), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        files = {o["file"] for o in lines(done.stdout)}
        self.assertTrue(any("libc" in file for file in files), files)
        self.assertTrue(any(file.endswith("/victim") for file in files), files)

    def test_explain_keys_and_methods(self):
        done = run("explain", VICTIM, "tl_site_*", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        objects = lines(done.stdout)
        for site in objects[:-1]:
            self.assertEqual(site["type"], "site")
            self.assertLessEqual({"file", "function", "addr", "bytes", "insn", "method", "reason",
                                  "window"}, set(site))
            self.assertEqual(site["method"], "jump", site)
            self.assertTrue(site["insn"] and site["bytes"] and site["window"], site)
        self.assertEqual(objects[-1]["type"], "summary")
        self.assertEqual(objects[-1]["sites"], len(SITES) + 1)

    def test_explain_of_a_process_knows_which_implementation_it_uses(self):
        victim = self.victim()
        done = run("explain", "-p", str(victim.pid), "libc.so.6:memcpy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("memcpy is an IFUNC: the implementation in use is ", done.stdout)

    def test_explain_changes_nothing_and_needs_no_stop(self):
        victim = self.victim()
        done = run("explain", "-p", str(victim.pid), "tl_site_*")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_text_is_the_files(victim.pid)
        with open(f"/proc/{victim.pid}/maps", encoding="utf-8") as maps:
            self.assertNotIn("trapless", maps.read())

    def test_statuses(self):
        self.assertEqual(run("list", VICTIM, "no_such_*").returncode, 3)
        self.assertEqual(run("explain", VICTIM, "no_such_*").returncode, 3)
        self.assertEqual(run("list", "/nowhere/at/all").returncode, 1)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no ELF")
            file.flush()
            self.assertEqual(run("list", file.name).returncode, 1)

    def test_a_reader_that_leaves_early_is_no_crash(self):
        child = subprocess.Popen([TRAPLESS, "list", VICTIM], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        child.stdout.close()
        with child.stderr:
            errors = child.stderr.read()
        self.assertIn(child.wait(TIMEOUT_S), (0, 1))
        self.assertEqual(errors, b"")


if __name__ == "__main__":
    unittest.main(verbosity=1)
