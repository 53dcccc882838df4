#!/usr/bin/env python3
"""Runs meson's test suites of a build folder and ends with one line: N passed, N failed, N skipped.

One unit is one meson test, or one line of a test that speaks TAP: a run of many in a guest. The output of a
failed one is shown. Exit status 1 if one failed, or if none
ran at all.
"""
import argparse
import json
import os
import re
import subprocess
import sys

RESULTS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
PARALLEL = ("unit", "fuzz", "guest") # a guest has its own clock, and mostly one processor at work
OUTPUT_MAX = 8000  # characters shown of a failed test


def read_log(path):
    with open(path, encoding="utf-8", errors="replace") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def parts_of(test):
    """[(how it went, what it was)] of a test that is a run of others."""
    if not re.search(r"^1\.\.\d+$", test.get("stdout", ""), re.M):
        return []
    lines = re.findall(r"^(ok|not ok) \d+ - (.*?)( # SKIP)?$", test["stdout"], re.M)
    return [("failed" if word != "ok" else "skipped" if skipped else "passed", name)
            for word, name, skipped in lines]


def count_test(suite, test, counts):
    """Counts a test, or its parts, and prints a line for each."""
    kind = RESULTS.get(test["result"], "failed")
    parts = parts_of(test)
    for went, name in parts:
        counts[went] += 1
        print(f"{went:8}            {suite}: {test['name'].split(' / ')[-1]}: {name}", flush=True)
    if not parts or (kind == "failed" and not any(went == "failed" for went, _ in parts)):
        counts[kind] += 1
    print(f"{kind:8}{test['duration']:8.2f} s  {suite}: {test['name'].split(' / ')[-1]}", flush=True)
    if kind == "failed":
        output = test.get("stdout", "") + test.get("stderr", "")
        print(f"--- {test['result']} ({test.get('returncode')})\n{output[-OUTPUT_MAX:]}---")


def run_suite(build, suite, without, jobs, multiplier):
    """Runs one suite, without tests of some others, prints a line for each test. Returns its counts, or None if meson failed."""
    logbase = f"check-{os.getpid()}-{suite}"
    log_folder = os.path.join(build, "meson-logs")
    log = os.path.join(log_folder, logbase + ".json")
    command = ["meson", "test", "-C", build, "--no-rebuild", "--suite", suite, "--num-processes",
               str(jobs), "--logbase", logbase, "--timeout-multiplier", multiplier]
    command += [word for name in without for word in ("--no-suite", name)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if "No suitable tests" in done.stdout or "No tests defined" in done.stdout:
        return counts
    if not os.path.exists(log):
        print(done.stdout, file=sys.stderr)
        return None
    for test in read_log(log):
        count_test(suite, test, counts)
    for name in os.listdir(log_folder):
        if name.startswith(logbase):
            os.unlink(os.path.join(log_folder, name))
    if done.returncode and not counts["failed"]:
        print(done.stdout, file=sys.stderr)
        return None
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--no-suite", action="append", default=[])
    parser.add_argument("--timeout-multiplier", default="1")
    arguments = parser.parse_args()
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for suite in arguments.suite:
        # Tests of live processes would disturb each other's timing.
        jobs = os.cpu_count() if suite in PARALLEL else 1
        counts = run_suite(arguments.build, suite, arguments.no_suite, jobs, arguments.timeout_multiplier)
        if counts is None:
            counts = {"failed": 1}
        for kind, count in counts.items():
            total[kind] += count
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
