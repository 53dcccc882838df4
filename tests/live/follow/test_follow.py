"""Children: forked, short-lived, preforked, daemons, programs executed. Counts are exact over all processes
with --follow, and the first process's alone without; at the end nobody has a byte of ours left.

usage: test_follow.py TRAPLESS FAMILY LEAF [TEST...]
"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "returns"))
from probed import MISSED, SLOW, Case, run, text_differences  # noqa: E402

TRAPLESS, FAMILY, LEAF = (os.path.abspath(word) for word in sys.argv[1:4])
del sys.argv[1:4]
Case.trapless = TRAPLESS
MODES = ("forks tree prefork short_children crowd threads forking_threads exec_chain exec_same exec_other "
         "exec_fails shells").split()
WORK, LEAF_WORK = f"{FAMILY}:work", "*:leaf_work"


def pids_of(parent):
    """The process and its living children's children."""
    found = [parent]
    for pid in found:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as children:
                found += map(int, children.read().split())
    return found


class Follow(Case):
    def total(self, report, kind, function):
        """Over all programs that have that function."""
        return sum(count["hits"] for count in report.find(report.counts, kind, function))

    def counted(self, mode, *words, follow, returns=False):
        probes = [WORK, LEAF_WORK]
        if returns:
            probes += [f"uretprobe:{FAMILY}:work", f"uretprobe:{LEAF}:leaf_work"]
        command = [FAMILY, mode, LEAF]
        told, report = self.exact("count", command, probes, *words)
        want = told.family_entries if follow else told.entries
        for name, entries in want.items():
            self.assertEqual(self.total(report, "uprobe", name), entries, report.counts)
            if returns:
                self.assertEqual(self.total(report, "uretprobe", name), entries, report.counts)
        self.assertEqual(report.summary["dropped"], 0)
        self.assertEqual(report.summary["hits"], sum(c["hits"] for c in report.counts.values()))
        return report

    def test_following_is_the_default_for_a_started_command(self):
        self.counted("forks", follow=True)

    def test_a_daemon_is_followed_to_its_end(self):
        for words, entries in (((), 1007), (("--no-follow",), 7)):
            with tempfile.NamedTemporaryFile("r") as file:
                told, report = self.launched("count", [FAMILY, "daemonizes", LEAF, file.name], [WORK], *words)[:2]
                self.assertEqual(told.results, ["parent"])
                self.assertEqual(self.total(report, "uprobe", "work"), entries)
                self.until(lambda file=file: self.read(file) == "daemon\n", 10 * SLOW)

    def test_functions_of_libc_in_every_program(self):
        """A shell that starts programs: libc is probed in each, and the counts add up."""
        script = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/echo $i; done; sh -c '/bin/echo in; /bin/echo out'"
        _, report = self.same("count", ["sh", "-c", script], ["libc.so.6:puts", "libc.so.6:*write*", "*:main"],
                              "--follow")
        self.assertEqual(report.summary["dropped"], 0)

    def test_everything_of_libc_in_every_program(self):
        script = "for i in 1 2 3; do /bin/echo $i | cat | tr 1 2; done; ls / > /dev/null; /bin/sh -c 'exit 3'; echo $?"
        self.same("count", ["bash", "-c", script], ["*:*"], "-q", "--follow")

    def test_events_of_children_say_whose_they_are(self):
        told, report = self.exact("trace", [FAMILY, "forks", LEAF], [WORK], "--follow")
        events = report.events_of("uprobe", "work")
        self.assertEqual(len(events), told.family_entries["work"])
        self.assertEqual(len({e["pid"] for e in events}), 9)
        for event in events:
            self.assertEqual(event["pid"], event["tid"])
        times = [e["ts_ns"] for e in report.events]
        self.assertEqual(times, sorted(times))

    def test_latencies_of_children_add_up(self):
        told, report = self.exact("latency", [FAMILY, "forks", LEAF], [WORK], "--follow")
        self.assertEqual(sum(o["count"] for o in report.latencies.values()), told.family_returns["work"])

    def test_more_children_than_there_is_room_for_are_told(self):
        for action in ("trace", "latency"):
            told, report, errors = self.launched(action, [FAMILY, "crowd", LEAF], [WORK], "--follow")
            seen = len(report.events) + sum(o["count"] for o in report.latencies.values())
            self.assertTrue(seen == told.family_entries["work"] or any(text in errors for text in MISSED), seen)


class Attached(Case):
    def family(self):
        parent = self.child(FAMILY, "serves", LEAF)
        self.assertEqual(parent.stdout.readline(), "ready\n")
        return parent

    def say(self, parent, line):
        parent.stdin.write(line + "\n")
        return parent.stdout.readline().strip()

    def nobody_has_a_byte_left(self, parent, children):
        family = pids_of(parent.pid)
        self.assertEqual(len(family), children + 1)
        for pid in family:
            self.assertEqual(text_differences(pid), 0, "the first" if pid == parent.pid else "a child")

    def served(self, *words, follow):
        parent = self.family()
        self.say(parent, "fork")  # before: not followed, it has nothing of ours
        count = self.attached("count", parent.pid, [WORK], *words)
        for _ in range(4):
            self.assertTrue(self.say(parent, "fork").isdigit())
        self.assertEqual(self.say(parent, "work 100"), "done")
        self.say(parent, "fork")  # this one never calls a probed function
        report = self.ended(count)
        self.assertEqual(report.hits("uprobe", "work"), 500 if follow else 100)
        self.nobody_has_a_byte_left(parent, 6)
        self.assertEqual(self.say(parent, "work 100"), "done")
        self.assertEqual(self.say(parent, "end"), "end")

    def test_children_are_clean_when_they_were_followed(self):
        self.served("--follow", follow=True)

    def test_children_are_clean_when_they_were_not(self):
        self.served(follow=False)

    def test_children_of_a_killed_controller_are_cleaned_by_detach(self):
        parent = self.family()
        count = self.attached("count", parent.pid, [WORK], "--follow", "--method", "jump")
        for _ in range(4):
            self.say(parent, "fork")
        self.assertEqual(self.say(parent, "work 100"), "done")
        count.kill()
        count.wait()
        self.assertEqual(self.say(parent, "work 100"), "done")
        self.say(parent, "fork")
        self.assertEqual(self.say(parent, "work 100"), "done")
        for pid in pids_of(parent.pid):
            done = run(TRAPLESS, "detach", "-p", str(pid))
            self.assertEqual(done.returncode, 0, done.stderr)
        self.nobody_has_a_byte_left(parent, 5)
        self.assertEqual(self.say(parent, "work 100"), "done")

    def test_attached_again_and_again_while_children_live(self):
        parent = self.family()
        for i in range(5):
            count = self.attached("count", parent.pid, [WORK], "--follow")
            self.say(parent, "fork")
            self.assertEqual(self.say(parent, "work 10"), "done")
            report = self.ended(count)
            self.assertEqual(report.hits("uprobe", "work"), 20, f"round {i}")
            self.nobody_has_a_byte_left(parent, i + 1)


def name_tests():
    for mode in MODES:
        for follow in (True, False):
            for returns in (False, True):
                word = "--follow" if follow else "--no-follow"

                def test(self, m=mode, w=word, f=follow, r=returns):
                    self.counted(m, w, follow=f, returns=r)
                what = "returns_" if returns else ""
                setattr(Follow, f"test_{what}{mode}_{'followed' if follow else 'alone'}", test)


name_tests()
if __name__ == "__main__":
    unittest.main(verbosity=1)
