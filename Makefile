# A thin face over meson: the build lives in ./build, the work is described in the meson.build files.
#
#   make          build                     make demo     the demonstration on a live redis-server
#   make check    build and run all tests   make bench    cost of a hit beside the kernel's uprobe
#   make torture  the long tests            make fuzz     the fuzz targets, longer
#   make tidy     clang-tidy and cppcheck   make install  with PREFIX and DESTDIR

BUILD ?= build
PREFIX ?= /usr/local
WERROR ?= true
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60

.PHONY: all setup check demo bench torture fuzz tidy install clean

all: setup
	@tools/build.sh "$(BUILD)" "$(JOBS)" -Dwerror=$(WERROR) -Dprefix="$(PREFIX)" -Dlibdir=lib

setup:
	@tools/setup.sh build

check: all
	@tools/check.py --build "$(BUILD)" --suite unit --suite fuzz --suite live --suite torture-short --suite demo

demo: all
	@tools/setup.sh demo
	@tools/demo.py --trapless "$(BUILD)/trapless"

bench: all
	@"$(BUILD)/trapless" bench

torture: all
	@tools/check.py --build "$(BUILD)" --suite torture

fuzz: all
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/check.py --build "$(BUILD)" --suite fuzz

tidy: all
	@tools/setup.sh tidy
	@tools/tidy.sh "$(BUILD)"

install: all
	@meson install -C "$(BUILD)" --no-rebuild

clean:
	@rm -rf "$(BUILD)"
