#!/usr/bin/env python3
"""Runs meson's test suites of a build folder and ends with one line: N passed, N failed, N skipped.

One unit is one meson test. The output of a failed one is shown. Exit status 1 if one failed, or if none
ran at all.
"""
import argparse
import json
import os
import subprocess
import sys

RESULTS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
OUTPUT_MAX = 8000  # characters shown of a failed test


def read_log(path):
    with open(path, encoding="utf-8", errors="replace") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1, help="live tests disturb each other's timing")
    parser.add_argument("--timeout-multiplier", default="1")
    arguments = parser.parse_args()

    logbase = f"check-{os.getpid()}"
    command = ["meson", "test", "-C", arguments.build, "--no-rebuild",
               "--num-processes", str(arguments.jobs), "--logbase", logbase,
               "--timeout-multiplier", arguments.timeout_multiplier]
    for suite in arguments.suite:
        command += ["--suite", suite]
    log_folder = os.path.join(arguments.build, "meson-logs")
    log = os.path.join(log_folder, logbase + ".json")
    print(f"tests: {', '.join(arguments.suite)}", flush=True)
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if not os.path.exists(log):
        print("meson ran no test", file=sys.stderr)
        return 1
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for test in read_log(log):
        kind = RESULTS.get(test["result"], "failed")
        counts[kind] += 1
        name = test["name"].split(" / ")[-1]
        print(f"{kind:8}{test['duration']:8.2f} s  {name}")
        if kind == "failed":
            output = test.get("stdout", "") + test.get("stderr", "")
            print(f"--- {test['result']} ({test.get('returncode')})\n{output[-OUTPUT_MAX:]}---")
    for name in os.listdir(log_folder):
        if name.startswith(logbase):
            os.unlink(os.path.join(log_folder, name))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if status or counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
