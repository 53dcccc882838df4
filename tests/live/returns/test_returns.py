"""Functions that are left in every way: by returns, tail calls, longjmp, exceptions, the end of their thread
or process. What a probed program prints is what it prints bare, and entries and returns are counted exactly.

usage: test_returns.py TRAPLESS FRAMES ENDS THROWS SPINS EVENTS [TEST...]
"""
import os
import platform
import signal
import sys
import unittest

from probed import Case, Report, returns_of, run

TRAPLESS, FRAMES, ENDS, THROWS, _, EVENTS = (os.path.abspath(word) for word in sys.argv[1:7])
del sys.argv[1:7]
Case.trapless = TRAPLESS

MODES = {
    FRAMES: "recursion deepest jumps same_place setjmps handlers alternate storm coroutines backtraces values tails never",
    ENDS: "thread_exits cancellations vanished movers fork_inside vfork_inside clone_inside exit_inside",
    THROWS: "plain again half edges threads other_thread",
}
WAYS = {"any": (), "exit": ("--return", "exit"), "trampoline": ("--return", "trampoline")}
# What one way alone may say no to, by the words of the refusal: an exit with no room for a branch depends on what
# memory is free.
REFUSED = {"exit": "exits can't be patched", "trampoline": "no sentence", "any": "no sentence"}
# Returns by an address that it was given in another register, where x86-64 has but one place for it.
ELSEWHERE = {"x86_64": ()}.get(platform.machine(), ("calls_first",))
FOLLOW = {True: "--follow", False: "--no-follow"}


class Returns(Case):
    @staticmethod
    def may_refuse(name, way, probe):
        return REFUSED[way] in probe["reason"] or (way == "trampoline" and name in ELSEWHERE)

    def returned(self, told, report, name, returns, way):
        """The counts of one return probe against what is known."""
        probe = report.one(report.probes, "uretprobe", name)
        if probe["method"] == "refused":
            self.assertTrue(probe["reason"], name)
            self.assertTrue(told.returns[name] == 0 or self.may_refuse(name, way, probe), f"{name}: {probe['reason']}")
            return
        self.assertFalse(way == "trampoline" and name in ELSEWHERE, probe)
        hits, dropped = report.hits("uretprobe", name), report.dropped("uretprobe", name)
        recorded, passed = hits - dropped, told.unwound.get(name, 0)
        if passed and probe["return_way"] == "trampoline":
            self.assertLessEqual(returns - passed, recorded, name)
            self.assertLessEqual(returns, hits, name)
            self.assertLessEqual(recorded, returns, name)
        else:
            self.assertEqual(recorded, returns, f"{name} by {way}: {probe}")
            self.assertEqual(dropped, 0, name)

    def entries_and_returns(self, program, mode, way, *words, family=False):
        functions = list(self.bare([program, mode]).entries)
        told, report = self.exact("count", [program, mode], functions + returns_of(program, *functions),
                                 *WAYS[way], FOLLOW[family], *words)
        entries, returns = (told.family_entries, told.family_returns) if family else (told.entries, told.returns)
        for name in functions:
            self.assertNotEqual(report.method("uprobe", name), "refused", name)
            self.assertEqual(report.hits("uprobe", name), entries[name], f"{name}: {report.probes}")
            self.returned(told, report, name, returns[name], way)
        return told, report

    def latencies(self, program, mode, way):
        functions = list(self.bare([program, mode]).entries)
        told, report = self.exact("latency", [program, mode], functions, *WAYS[way], "--no-follow")
        for name, returns in told.returns.items():
            found = [o for o in report.latencies.values() if o["probe"].rsplit(":", 1)[1] == name]
            if not found:
                refused = [p for p in report.probes.values() if p["probe"].rsplit(":", 1)[1] == name
                           and p["method"] == "refused"]
                self.assertTrue(returns == 0 or (refused and self.may_refuse(name, way, refused[0])), name)
                continue
            least = returns - told.moved.get(name, 0)
            if way != "exit":
                least -= told.unwound.get(name, 0)
            if program == FRAMES and mode == "deepest":
                least = 0  # deeper than there is room for: lost entries are said, not invented
            self.assertLessEqual(found[0]["count"], returns, name)
            # It calls with the stack pointer that it was entered with, by which the two can't be told apart.
            told_apart = found[0]["count"] + (found[0]["unpaired"] if name in ELSEWHERE else 0)
            self.assertGreaterEqual(told_apart, least, name)

    def everything(self, program, mode, action):
        """Entry and return of every function of the program at once."""
        probes = ["*"] if action == "latency" else ["*", f"uretprobe:{program}:*"]
        told, report = self.same(action, [program, mode], probes, "-q", "--no-follow")
        if action == "count":
            for name, entries in told.entries.items():
                self.assertEqual(report.hits("uprobe", name), entries, name)

    def test_children_that_return_from_what_the_parent_entered(self):
        self.entries_and_returns(ENDS, "fork_inside", "any", family=True)

    def test_functions_that_never_return_are_refused_in_words(self):
        names = "never_exits never_jumps never_ends never_aborts".split()
        _, report, _ = self.launched("count", [FRAMES, "never"], ["main", *returns_of(FRAMES, *names)])
        for name in names:
            probe = report.one(report.probes, "uretprobe", name)
            self.assertEqual(probe["method"], "refused", name)
            self.assertIn("return", probe["reason"], name)
        self.launched("count", [FRAMES, "never"], returns_of(FRAMES, *names), status=3)

    def test_functions_of_libc_that_return_twice(self):
        names = "fork vfork _setjmp __sigsetjmp clone posix_spawn".split()
        for program, mode in ((FRAMES, "setjmps"), (FRAMES, "handlers"), (ENDS, "fork_inside"),
                              (ENDS, "vfork_inside"), (ENDS, "clone_inside")):
            for way in WAYS.values():
                with self.subTest(mode=mode, way=way):
                    self.same("count", [program, mode], [*(f"libc.so.6:{n}" for n in names),
                                                         *returns_of("libc.so.6", *names)], *way)

    def test_neighbours_on_two_pages(self):
        _, report = self.same("count", [FRAMES, "tails"], [f"uprobe:{FRAMES}:crosses_page", f"uprobe:{FRAMES}:crosses_page+4"],
                              "--method", "jump")
        self.assertEqual([c["hits"] for c in report.counts.values()], [1000, 1000], report.probes)

    def test_main_returns_once(self):
        for way in WAYS.values():
            _, report = self.same("count", [FRAMES, "values"], ["main", *returns_of(FRAMES, "main")], *way)
            self.assertEqual((report.hits("uprobe", "main"), report.hits("uretprobe", "main")), (1, 1))

    def test_explain_says_how_returns_are_probed(self):
        done = run(TRAPLESS, "explain", FRAMES, f"uretprobe:{FRAMES}:tail_cond", f"uretprobe:{FRAMES}:two_returns",
                   f"uretprobe:{FRAMES}:never_jumps")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("exit", done.stdout)
        self.assertIn("never_jumps", done.stdout)


class Values(Case):
    def values(self, program, mode, way):
        functions = list(self.bare([program, mode]).values)
        told, report = self.same("trace", [program, mode], returns_of(program, *functions), *WAYS[way])
        for name, values in told.values.items():
            got = report.events_of("uretprobe", name)
            self.assertEqual(len(got), len(values), name)
            for event, (value, bits) in zip(got, values):
                mask = (1 << bits) - 1
                self.assertEqual(event["ret"] & mask, value & mask, name)

    def test_return_values_by_exits(self):
        self.values(FRAMES, "values", "exit")

    def test_return_values_by_trampoline(self):
        self.values(FRAMES, "values", "trampoline")

    def test_return_values_beside_arguments(self):
        told, report = self.same("trace", [EVENTS, "arguments"], ["takes", *returns_of(EVENTS, "takes")])
        self.assertEqual([e["args"] for e in report.events_of("uprobe", "takes")], told.args["takes"])
        self.assertEqual([[e["ret"], 64] for e in report.events_of("uretprobe", "takes")], told.values["takes"])


class Attached(Case):
    def test_a_thread_inside_when_the_probes_come_and_go(self):
        """A caller that waits in a probed function is neither held nor hurt, and its return is no invention."""
        for way in WAYS.values():
            child = self.child("cat")
            child.stdin.write("one\n")
            self.assertEqual(child.stdout.readline(), "one\n")
            count = self.attached("count", child.pid, ["libc.so.6:read", *returns_of("libc.so.6", "read", "write")],
                                  *way)
            for word in ("two\n", "three\n"):
                child.stdin.write(word)
                self.assertEqual(child.stdout.readline(), word)
            report = self.ended(count)  # while it waits in read()
            self.assertIsInstance(report, Report)
            child.stdin.write("four\n")
            self.assertEqual(child.stdout.readline(), "four\n")
            child.stdin.close()
            self.assertEqual(child.wait(10), 0)
            child.stdin = None


    def test_an_unwinder_that_comes_while_the_controller_stands_still_or_is_gone(self):
        """Threads exit through frames whose return address was replaced; nobody has seen the unwinder come."""
        for end in (signal.SIGSTOP, signal.SIGKILL):
            for way in WAYS.values():
                with self.subTest(end=end, way=way):
                    child = self.child(ENDS, "told_exits")
                    self.assertEqual(child.stdout.readline(), "ready\n")
                    count = self.attached("count", child.pid, returns_of(ENDS, "sinks", "exits_thread"), *way)
                    count.send_signal(end)
                    out, _ = child.communicate("go\n", timeout=30)
                    self.assertEqual(child.returncode, 0, way)
                    self.assertIn("joined 400 cleaned 11550", out)


def name_tests():
    for program, modes in MODES.items():
        for mode in modes.split():
            for way in WAYS:
                def counts(self, p=program, m=mode, w=way):
                    self.entries_and_returns(p, m, w)
                setattr(Returns, f"test_{mode}_by_{way}", counts)
            for way in WAYS:
                def timed(self, p=program, m=mode, w=way):
                    self.latencies(p, m, w)
                if mode != "never":  # none could be placed
                    setattr(Returns, f"test_latency_of_{mode}_by_{way}", timed)
            for action in ("count", "latency", "trace"):
                def whole(self, p=program, m=mode, a=action):
                    self.everything(p, m, a)
                if (mode, action) != ("storm", "trace"):
                    setattr(Returns, f"test_{action}_of_every_function_of_{mode}", whole)


name_tests()
if __name__ == "__main__":
    unittest.main(verbosity=1)
