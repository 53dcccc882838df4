# A thin face over meson: the build lives in ./build, the work is described in the meson.build files.
#
#   make          build                     make demo     the demonstration on a live redis-server
#   make check    build and run all tests   make bench    cost of a hit beside the kernel's uprobe
#   make torture  the long tests            make fuzz     the fuzz targets, longer
#   make tidy     clang-tidy and cppcheck   make install  with PREFIX and DESTDIR
#   make guest-shell  a prompt in a machine of ARCH (arm64), with KERNEL (trixie, forky)
#   make bench-guest  cost of a hit there, by instructions and by time; JSON=1: JSON lines

BUILD ?= build
PREFIX ?= /usr/local
WERROR ?= true
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
ARCH ?= arm64
KERNEL ?= forky
JSON ?=

.PHONY: all setup check demo bench torture fuzz tidy install clean guest-setup guest-shell bench-guest

all: setup
	@tools/build.sh "$(BUILD)" "$(JOBS)" -Dwerror=$(WERROR) -Dprefix="$(PREFIX)" -Dlibdir=lib

setup:
	@tools/setup.sh build

check: all guest-setup
	@tools/check.py --build "$(BUILD)" --suite unit --suite fuzz --suite live --suite torture-short --suite demo \
	  --suite guest

demo: all
	@tools/setup.sh demo
	@tools/demo.py --trapless "$(BUILD)/trapless"

bench: all
	@"$(BUILD)/trapless" bench

guest-setup:
	@tools/setup.sh guest

guest-shell: guest-setup
	@tools/guest.py shell --arch "$(ARCH)" --kernel "$(KERNEL)"

bench-guest: guest-setup
	@tools/guest.py bench --arch "$(ARCH)" $(if $(filter 1,$(JSON)),--json)

torture: all guest-setup
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
