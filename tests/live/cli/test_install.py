"""What is installed works from where it lies, and shows nothing but its face.

usage: test_install.py SOURCE BUILD SHARED_LIBRARY VICTIM
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

VICTIM = os.path.abspath(sys.argv.pop(4))
LIBRARY = os.path.abspath(sys.argv.pop(3))
BUILD = os.path.abspath(sys.argv.pop(2))
SOURCE = os.path.abspath(sys.argv.pop(1))
TIMEOUT_S = 60
HEADERS = os.path.join(SOURCE, "include", "trapless")
COMPLETION = os.path.join(SOURCE, "data", "completion")


def output(*words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=True, **options).stdout


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def declared():
    """The functions that the public headers declare."""
    names = set()
    for name in os.listdir(HEADERS):
        text = re.sub(r"//[^\n]*|(?m:^#(?:[^\n]*\\\n)*[^\n]*)", "", text_of(HEADERS, name))
        names |= set(re.findall(r"\b(tl_\w+)\(", text))
    return names


class Face(unittest.TestCase):
    def test_the_library_offers_what_the_headers_declare(self):
        table = output("nm", "-D", "--defined-only", LIBRARY)
        names = {line.split()[2].split("@")[0] for line in table.splitlines() if " A " not in line}
        self.assertIn("tl_session_attach", names)
        self.assertEqual(names, declared())
        self.assertIn("libtrapless.so.0", output("readelf", "-d", LIBRARY))

    def test_the_command_includes_the_public_headers_only(self):
        seen = set()
        for folder in ["cli", "show"]:
            for name in os.listdir(os.path.join(SOURCE, "src", folder)):
                if name.endswith((".c", ".h")):
                    for header in re.findall(r'#\s*include\s+"([^"]+)"',
                                             text_of(SOURCE, "src", folder, name)):
                        seen.add(header)
                        self.assertIn(header.split("/")[0], {"trapless", "cli", "show"},
                                      f"{folder}/{name} includes {header}")
        self.assertIn("trapless/trapless.h", seen)

    def test_each_public_header_stands_alone_in_c_and_cplusplus(self):
        compilers = [["cc", "-x", "c", "-std=c17"]]
        if shutil.which("c++"):
            compilers.append(["c++", "-x", "c++", "-std=c++17"])
        for name in os.listdir(HEADERS):
            for compiler in compilers:
                output(*compiler, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                       "-I", os.path.join(SOURCE, "include"), os.path.join(HEADERS, name))


class Completion(unittest.TestCase):
    def complete(self, *words):
        """What bash offers for the last of words."""
        script = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trapless; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return output("bash", "-c", script, os.path.join(COMPLETION, "trapless.bash"), "trapless",
                      *words, env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}).split()

    def test_every_command_and_option_is_offered(self):
        trapless = os.path.join(BUILD, "trapless")
        usage = output(trapless, "--help")
        commands = set(re.findall(r"(?m)^(?:usage:|      ) trapless (\w+)", usage))
        self.assertLessEqual(commands, set(self.complete("")))
        zsh = text_of(COMPLETION, "_trapless")
        for command in commands:
            wanted = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", output(trapless, command, "--help")))
            self.assertLessEqual(wanted - set(self.complete(command, "--")), set(), command)
            self.assertIn(command, zsh)
            for option in wanted:
                self.assertIn(option, zsh)

    def test_words_of_options_files_and_functions(self):
        self.assertEqual(self.complete("count", "--method", "si"), ["simulate"])
        self.assertEqual(self.complete("trace", "--return", ""), ["exit", "trampoline"])
        self.assertIn(str(os.getpid()), self.complete("count", "-p", ""))
        self.assertIn("tl_site_push", self.complete("explain", VICTIM, "tl_site_p"))
        self.assertIn(VICTIM, self.complete("list", VICTIM[:-1]))


class Install(unittest.TestCase):
    def test_an_installed_library_and_command_work(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        output("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet",
               env={**os.environ, "DESTDIR": folder})
        found = {os.path.relpath(os.path.join(at, name), folder): os.path.join(at, name)
                 for at, _, names in os.walk(folder) for name in names}

        def only(ending):
            paths = [path for name, path in found.items() if ("/" + name).endswith(ending)]
            self.assertEqual(len(paths), 1, (ending, sorted(found)))
            return paths[0]

        for ending in ["/libtrapless.a", "/include/trapless/session.h", "/man1/trapless.1",
                       "/libexec/trapless/victim",
                       "/bash-completion/completions/trapless", "/site-functions/_trapless"]:
            only(ending)
        self.assertRegex(output(only("/bin/trapless"), "--version"), r"^trapless \d")
        self.build_and_run(folder, os.path.dirname(only("/trapless.pc")),
                           os.path.dirname(only("/libtrapless.so")))

    def build_and_run(self, folder, pkgconfig, libraries):
        env = {**os.environ, "PKG_CONFIG_PATH": pkgconfig, "PKG_CONFIG_SYSROOT_DIR": folder,
               "LD_LIBRARY_PATH": libraries}
        flags = output("pkg-config", "--cflags", "--libs", "trapless", env=env).split()
        sanitizers = ["-fsanitize=address,undefined"] if "__asan_init" in output("nm", "-D", LIBRARY) else []
        example = os.path.join(folder, "latency_of")
        source = os.path.join(SOURCE, "examples", "latency_of.c")
        output("cc", *sanitizers, source, "-o", example, *flags)
        private = output("pkg-config", "--static", "--cflags", "--libs", "trapless", env=env).split()
        output("cc", *sanitizers, source, "-o", example + "-static", os.path.join(libraries, "libtrapless.a"),
               *[flag for flag in private if flag != "-ltrapless"], "-pthread")
        self.assertIn("libtrapless.so.0", output("readelf", "-d", example))
        done = subprocess.run([example], env=env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        gone = subprocess.Popen(["true"])
        gone.wait()
        done = subprocess.run([example, str(gone.pid), "main"], env=env, capture_output=True,
                              text=True, check=False, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(str(gone.pid), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
