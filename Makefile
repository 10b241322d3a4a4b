# Build, run and test everything. `make help` lists the targets.
#
#   BUILD=release|debug|asan|tsan|fuzz|coverage   flags, each in its own folder below build/
#   CC=gcc|clang   WERROR=1 warnings are errors (CI)   V=1 show commands   B=dir instead of build/
#   TEST=glob      only tests whose name matches       FUZZ_SECONDS=30     SEED=n
#   ROCKSDB_DIR=dir        another build of RocksDB: dir/include, dir/lib (common/store/TUNING.md)
#   PORT=4040 DATA=build/data DEMO=1 SELF=1            for `make run`; deploy/run-cluster says its own
#   STEPS='lint format'    only these steps of `make check`    TIDY=all    every file, for `make tidy`

BUILD   ?= release
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
V       ?= 0
TEST    ?= *
B       ?= build
PREFIX  ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
PORT    ?= 4040
DATA    ?= $(B)/data
DEMO    ?= 1
SELF    ?= 1
JOBS    ?= $(shell nproc)
VERSION := $(shell cat deploy/VERSION)
IMAGE   ?= embertree
STEPS   ?=
TIDY    ?=
Q       := $(if $(filter 0,$(V)),@)
O       := $(B)/$(BUILD)$(if $(filter clang%,$(notdir $(CC))),-clang)
ROLES   := distributor ingester querier compactor

CSTD    := -std=c17 -D_GNU_SOURCE
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wformat=2 \
           -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wcast-qual -Wswitch-enum \
           -Wwrite-strings -Wpointer-arith -Wnull-dereference -Wdouble-promotion -Wdate-time
WARN    += $(if $(filter gcc%,$(notdir $(CC))),-Wduplicated-cond -Wduplicated-branches -Wlogical-op \
           -Wformat-truncation=2 -Walloca,-Wcomma -Wassign-enum)
WARN    += $(if $(WERROR),-Werror)
HARDEN  := -fstack-protector-strong -fstack-clash-protection -fcf-protection=full
ALWAYS  := -g -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fvisibility=hidden -fno-common \
           -fno-strict-overflow -fPIE -pthread -ffile-prefix-map=$(CURDIR)=. -MMD -MP

release_CFLAGS  := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 $(HARDEN)
debug_CFLAGS    := -O1 -DDEBUG
# -g1: lines for reports of sanitizers; less to compile and to link three hundred times than all of -g.
asan_CFLAGS     := -O1 -g1 -DDEBUG -fsanitize=address,undefined -fno-sanitize-recover=all
tsan_CFLAGS     := -O1 -g1 -DDEBUG -fsanitize=thread -fno-builtin-memset
fuzz_CFLAGS     := -O1 -g1 -DDEBUG -DFUZZING -fsanitize=fuzzer-no-link,address,undefined \
                   -fno-sanitize-recover=all
coverage_CFLAGS := -O0 -DDEBUG --coverage
release_LDFLAGS := -pie -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--as-needed -Wl,--build-id=sha1
coverage_LDFLAGS := --coverage
# jemalloc would hide errors from the sanitizers.
release_LDLIBS  := -ljemalloc
ifeq (,$($(BUILD)_CFLAGS))
$(error BUILD=$(BUILD): want release, debug, asan, tsan, fuzz or coverage)
endif
all_CFLAGS   = $(CSTD) $(WARN) $(ALWAYS) $($(BUILD)_CFLAGS) -I. -I$(O)/gen $(ROCKSDB_CFLAGS) -isystem /usr/share/include $(CFLAGS)
all_LDFLAGS  = -pthread $(filter -fsanitize=address% -fsanitize=thread,$($(BUILD)_CFLAGS)) \
               $(if $(filter fuzz,$(BUILD)),-fsanitize=address$(comma)undefined) \
               $($(BUILD)_LDFLAGS) $(LDFLAGS)
comma        := ,
# Three hundred test programs are compiled once and run for moments: what they are made of is optimized, they are less;
# and gold, where it is, links them in a third of the time.
own_CFLAGS    = $(if $(filter release,$(BUILD)),$(if $(filter tests/unit/% tests/prop/%,$(1)),-O1))
TEST_LDFLAGS := $(if $(shell command -v ld.gold),-fuse-ld=gold)
ROCKSDB_DIR ?=
ROCKSDB_CFLAGS := $(if $(ROCKSDB_DIR),-isystem $(ROCKSDB_DIR)/include)
ROCKSDB_LDFLAGS := $(if $(ROCKSDB_DIR),-L$(ROCKSDB_DIR)/lib -Wl$(comma)-rpath$(comma)$(ROCKSDB_DIR)/lib)
all_LDLIBS  := $(ROCKSDB_LDFLAGS) -lrocksdb -lsnappy -luv -lprotobuf-c -lyaml -lzstd -llz4 -ldeflate -lz -ljansson -lpcre2-8 \
               -lxxhash -lroaring -lnghttp2 -lbrotlidec -lcurl -lssl -lcrypto $($(BUILD)_LDLIBS) -lstdc++ -lm

# Former versions spoke by it; a test has them at the other end.
$(O)/tests/unit/common/rpc/test_rpc_nn: link_LDLIBS += -lnanomsg
# Counts what is allocated while the dynamic linker's lock is held.
$(O)/tests/unit/common/obs/test_unwind: link_LDLIBS += $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc dl_iterate_phdr)
# Counts what a proof of a key costs, since equal costs cannot be timed.
$(O)/tests/unit/common/identity/test_registry_cost: link_LDLIBS += $(addprefix -Wl$(comma)--wrap=,rpc_mac secret_eq)

# embertreectl is for machines that have no server: what Debian has as archives goes into it, in the
# builds that people take along (deploy/ctl/README.md says why not the rest).
ifeq ($(BUILD)$(ROCKSDB_DIR),release)
ctl_LDLIBS := -Wl$(comma)-Bstatic -lrocksdb -lsnappy -lbz2 -lprotobuf-c -lyaml -lzstd -llz4 -ldeflate -lz \
              -lpcre2-8 -lxxhash -lstdc++ -Wl$(comma)-Bdynamic -ljansson -luv -lroaring -lnghttp2 \
              -lbrotlidec -lcurl -lssl -lcrypto -lm
else
ctl_LDLIBS = $(all_LDLIBS)
endif

# Every .c below a folder belongs to that folder's archive; nothing is listed by hand.
src       = $(sort $(shell find $(1) \( -name '*.c' -o -name '*.cc' -o -name '*.S' \) -not -path '*/node_modules/*' 2>/dev/null))
obj       = $(patsubst %,$(O)/%.o,$(filter-out %/roles.c common/role/process/main.c deploy/ctl/main.c,$(call src,$(1))))
PROTO    := $(sort $(wildcard proto/*.proto))
GEN_H    := $(PROTO:%.proto=$(O)/gen/%.pb-c.h)
LLHTTP   := $(patsubst %,$(O)/llhttp/%.o,api http llhttp)
ARCHIVES := $(O)/libctl.a $(ROLES:%=$(O)/lib%.a) $(O)/libcommon.a $(O)/libproto.a $(O)/libllhttp.a
BASE_A   := $(O)/libcommon.a $(O)/libproto.a $(O)/libllhttp.a
BINS     := $(O)/bin/embertree $(ROLES:%=$(O)/bin/embertree-%)
DEMO_BIN := $(O)/bin/embertree-demo
CTL_BIN  := $(O)/bin/embertreectl
TESTLIB  := $(O)/libtest.a
UNIT     := $(sort $(patsubst %.c,$(O)/%,$(shell find tests/unit tests/prop tests/sim -name "test_$(TEST).c" 2>/dev/null)))
CLUSTER  := $(sort $(shell find tests/cluster -name 'test_$(TEST).py' 2>/dev/null))
FUZZ     := $(sort $(patsubst %.c,$(O)/%,$(shell find tests/fuzz -name 'fuzz_$(TEST).c' 2>/dev/null)))
BENCH    := $(sort $(patsubst %.c,$(O)/%,$(wildcard tests/bench/bench_*.c)))
BENCH_PY := $(sort $(wildcard tests/bench/bench_*.py))
TOOLS    := $(sort $(patsubst %.c,$(O)/%,$(shell find tests/lib -name 'tool_*.c')))
PRELOADS := $(sort $(patsubst %.c,$(O)/%.so,$(shell find tests/lib -name 'preload_*.c')))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all deps deps-test run run-cluster test test-clients test-unit cluster power test-upgrade check check-asan check-tsan \
        check-tsan-shared fuzz bench bench-year sim sim-mutants mutants lint tidy fmt fmt-check compdb ui dist image install \
        clean coverage help
# Steps of the targets above, which `make help` leaves out.
.PHONY: test-bins bench-bins test-shared fuzz-run tidy-run FORCE

all: $(BINS) $(CTL_BIN) $(DEMO_BIN)  ## the all-in-one, the four role binaries, embertreectl (default)

deps:                  ## install what building and running needs (Debian packages)
	$(Q)deploy/debian/install-packages deploy/debian/build-packages.txt
deps-test: deps        ## and what the tests need
	$(Q)deploy/debian/install-packages deploy/debian/test-packages.txt

run:                   ## the whole product in one process, with a live demo, on PORT
	$(Q)deploy/debian/install-packages --if-missing deploy/debian/build-packages.txt
	$(Q)deploy/debian/install-node --if-missing
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) ui all
	$(Q)B='$(B)' O='$(O)' PORT='$(PORT)' DATA='$(DATA)' DEMO='$(DEMO)' SELF='$(SELF)' deploy/run
run-cluster:           ## a whole cluster on this machine, from PORT on, with a live demo
	$(Q)deploy/debian/install-packages --if-missing deploy/debian/build-packages.txt
	$(Q)deploy/debian/install-node --if-missing
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) ui all
	$(Q)O='$(O)' PORT='$(PORT)' DATA='$(if $(filter file,$(origin DATA)),$(B)/cluster-data,$(DATA))' \
	  DEMO='$(DEMO)' SELF='$(SELF)' deploy/run-cluster

test:                  ## every test that needs only Debian packages and npm
	$(Q)deploy/debian/install-packages --if-missing deploy/debian/build-packages.txt
	$(Q)deploy/debian/install-packages --if-missing deploy/debian/test-packages.txt
	$(Q)deploy/debian/install-node --if-missing
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) ui all test-bins
	$(Q)O='$(O)' tests/lib/run-tests $(UNIT) $(CLUSTER)

test-clients: all      ## real SDKs, exporters and tools from their registries against a live server
	$(Q)O='$(O)' tests/clients/run $(CLIENTS)

test-bins: $(UNIT) $(TOOLS) $(PRELOADS) $(BINS) $(CTL_BIN) $(DEMO_BIN)
bench-bins: $(BENCH)

check:                 ## the gate: what must pass before a push, and what CI runs (STEPS='lint tests')
	$(Q).ci/run $(STEPS)
check-asan:            ## unit and property tests under ASan and UBSan
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) BUILD=asan test-unit
check-tsan:            ## unit and property tests under TSan
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) BUILD=tsan test-unit
# The programs in which threads really share something; the others have one thread, and say nothing here.
SHARED := begin cond copy copy_sources dict disk fold http kv kv_pool kv_rocks log loop metrics reopen repl_node repl_odd selfprof shard store_threads \
          stream threads view ingester pool
check-tsan-shared:     ## those of them in which threads share something: what CI runs
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) BUILD=tsan test-shared
test-shared: $(foreach t,$(SHARED),$(filter %/test_$(t),$(UNIT)))
	$(Q)O='$(O)' tests/lib/run-tests $^
test-unit: $(UNIT)     ## only the unit and property tests
	$(Q)O='$(O)' tests/lib/run-tests $(UNIT)

FUZZ_SECONDS ?= 30
fuzz:                  ## each fuzz target for FUZZ_SECONDS (clang); TEST=pprof for one
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) BUILD=fuzz CC=clang fuzz-run
fuzz-run: $(FUZZ)
	$(Q)O='$(O)' B='$(B)' JOBS='$(JOBS)' FUZZ_SECONDS='$(FUZZ_SECONDS)' tests/fuzz/run $^
bench: all $(BENCH) $(TOOLS)  ## measure, print and keep: tests/bench/RESULTS.md
	$(Q)O='$(O)' tests/bench/run $(BENCH_PY) $(BENCH)

bench-year: $(BENCH) $(TOOLS) all  ## the long form of what the simulated year measures (an hour)
	$(Q)O='$(O)' LONG=1 OUT='$(B)/bench-year.md' BENCH_SECONDS=7200 tests/bench/run \
	  $(O)/tests/bench/bench_year $(O)/tests/bench/bench_bytes $(O)/tests/bench/bench_series \
	  $(O)/tests/bench/bench_million tests/bench/bench_restart.py

cluster: all $(TOOLS)  ## chaos over real processes in network namespaces: CHAOS_SECONDS=1800 SEED=n
	$(Q)O='$(O)' SEED='$(SEED)' CHAOS_SECONDS='$(or $(CHAOS_SECONDS),1800)' python3 tests/chaos/run.py
power: all $(O)/tests/lib/tools/tool_wire ## power cuts of real file systems at the worst moments: POWER_SECONDS=60 SEED=n
	$(Q)O='$(O)' SEED='$(SEED)' POWER_SECONDS='$(POWER_SECONDS)' python3 tests/chaos/power.py
test-upgrade: all      ## from the version before (OLD=commit) to this one and back, under load
	$(Q)O='$(O)' OLD='$(OLD)' python3 tests/chaos/upgrade.py

sim: $(O)/tests/lib/tools/tool_sim ## whole clusters, simulated: SEED=n, SEEDS=n from there on, JOBS=n, MUTANT=all
	$(Q)O='$(O)' SEED='$(SEED)' SEEDS='$(SEEDS)' JOBS='$(JOBS)' MUTANT='$(MUTANT)' tests/sim/run

sim-mutants: $(O)/tests/lib/tools/tool_sim ## each thing broken on purpose must be noticed within SEEDS worlds: SEED=n, JOBS=n
	$(Q)O='$(O)' SEED='$(SEED)' SEEDS='$(or $(SEEDS),120)' JOBS='$(JOBS)' MUTANT=all tests/sim/run

mutants: $(addprefix $(O)/,$(if $(filter mutants,$(MAKECMDGOALS)),$(shell MUTANT='$(MUTANT)' python3 tests/mutants/run.py --tests)))  ## one line of the product broken at a time: a test must notice each (MUTANT=begin of names)
	$(Q)O='$(O)' CC='$(CC)' CFLAGS='$(all_CFLAGS)' LDFLAGS='$(all_LDFLAGS) $(TEST_LDFLAGS)' LDLIBS='$(all_LDLIBS) -lcmocka' \
	  ARCHIVES='$(TESTLIB) $(ARCHIVES)' JOBS='$(JOBS)' MUTANT='$(MUTANT)' V='$(V)' python3 tests/mutants/run.py

lint:                  ## house rules no compiler checks
	$(Q)python3 tests/lint/tidy.py
	$(Q)python3 tests/lint/cites.py --self-test
	$(Q)python3 tests/lint/words.py --self-test
# The newest 30 changed files, for 85 s: a step of the gate.
tidy:                  ## clang-tidy on the files changed last (TIDY=all: on each, an hour)
	$(Q)$(MAKE) --no-print-directory CC=clang tidy-run
tidy-run: $(GEN_H) $(O)/gen/version.h
	$(Q)python3 tests/lint/analyse.py $(or $(TIDY),changed 30 85) -- $(filter-out -MMD -MP,$(all_CFLAGS))
fmt:                   ## rewrite with clang-format
	$(Q)clang-format -i $$(git ls-files '*.c' '*.h')
fmt-check:             ## say what fmt would change
	$(Q)clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')
compdb: compile_commands.json  ## compile_commands.json for editors
compile_commands.json: Makefile $(GEN_H) $(call src,common $(ROLES) deploy tests)
	$(Q){ echo '['; sep=; for f in $(filter %.c,$^); do printf '%s{"directory":"%s","file":"%s","command":"%s"}\n' \
	  "$$sep" '$(CURDIR)' $$f "$(CC) $(filter-out -MMD -MP,$(all_CFLAGS)) -c $$f"; sep=,; done; echo ']'; } > $@
coverage:              ## line coverage per folder (gcovr)
	$(Q)$(MAKE) --no-print-directory BUILD=coverage test-unit
	$(Q)gcovr -r . $(B)/coverage --exclude tests/ --exclude-directories 'build/coverage/gen'

dist:                  ## a source tarball that builds without git and knows its version
	$(Q)deploy/dist $(B)/dist
image:                 ## the container image IMAGE:version (needs Docker)
	docker build -f deploy/docker/Dockerfile -t $(IMAGE):$(VERSION) .
install: all           ## binaries, manual, completion, systemd units to $(DESTDIR)$(PREFIX); configuration that is not there
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/embertree
	install -m 0755 $(BINS) $(CTL_BIN) $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(CTL_BIN) man > $(DESTDIR)$(PREFIX)/share/man/man1/embertreectl.1
	$(CTL_BIN) completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/embertreectl
	$(CTL_BIN) completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_embertreectl
	$(CTL_BIN) completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/embertreectl.fish
	install -m 0644 deploy/config/*.yaml deploy/config/REFERENCE.md $(DESTDIR)$(PREFIX)/share/embertree
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(SYSCONFDIR)/embertree
	for u in deploy/systemd/*.service; do sed 's,/usr/\(bin\|share\)/,$(PREFIX)/\1/,' $$u \
	  > $(DESTDIR)$(PREFIX)/lib/systemd/system/$${u##*/} || exit; done
	for r in embertree $(ROLES); do to=$(DESTDIR)$(SYSCONFDIR)/embertree/$$r.yaml; \
	  [ -e "$$to" ] || install -m 0644 deploy/config/$$(echo $$r | sed s/^embertree$$/allinone/).yaml "$$to" || exit; done
clean:                 ## remove build/
	$(Q)rm -rf $(B) compile_commands.json
help:                  ## this list
	@sed -n '/^#/!q; s/^#  \{0,1\}//p' $(firstword $(MAKEFILE_LIST)); echo
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## */\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 19

# ---- the page: built by Vite where Node is, a plain page otherwise -------------------------------
UI_SRC := $(shell find querier/ui/web -type f -not -path '*/node_modules/*' 2>/dev/null)
ui: $(B)/ui/done       ## the web page (needs Node; without it a plain page is built in)
$(B)/ui/done: $(UI_SRC) querier/ui/build querier/ui/plain.html deploy/VERSION
	$(Q)querier/ui/build $(B)/ui

# ---- generated code ------------------------------------------------------------------------------
$(O)/gen/%.pb-c.c $(O)/gen/%.pb-c.h &: %.proto $(PROTO)
	@mkdir -p $(O)/gen/proto; echo "GEN $<"
	$(Q)protoc-c --c_out=$(O)/gen $<
$(O)/gen/%.o: $(O)/gen/%.c
	$(Q)$(CC) $(CSTD) -w $(ALWAYS) $($(BUILD)_CFLAGS) -I$(O)/gen -c $< -o $@
# The number is that of deploy/VERSION. The commit comes from git, or from the file that `make dist` puts
# into a tarball; git is not asked where the tree has no .git, since it would name the repository around it.
$(O)/gen/version.h: FORCE
	@mkdir -p $(@D); v=$$(cat deploy/VERSION) || exit; \
	  if [ -e .git ]; then c=$$(git describe --always --abbrev=8 --dirty --exclude '*' 2>/dev/null); \
	  elif [ -e deploy/COMMIT ]; then c=$$(cat deploy/COMMIT); fi; \
	  printf '#define EMBERTREE_%s "%s"\n' VERSION "$$v" COMMIT "$${c:-unknown}" BUILD "$$v$${c:+ ($$c)}" > $@.new; \
	  if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(O)/llhttp/%.o: /usr/share/llhttp/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -w $(ALWAYS) $($(BUILD)_CFLAGS) -I/usr/share/include/llhttp -c $< -o $@

# ---- archives and programs -----------------------------------------------------------------------
$(O)/libproto.a: $(PROTO:%.proto=$(O)/gen/%.pb-c.o)
$(O)/libllhttp.a: $(LLHTTP)
$(foreach r,$(ROLES),$(eval $(O)/lib$r.a: $(call obj,$r)))
$(O)/libcommon.a: $(call obj,common)
$(O)/libctl.a: $(call obj,deploy/ctl)
$(TESTLIB): $(patsubst %,$(O)/%.o,$(filter-out $(TOOLS:$(O)/%=%.c) $(PRELOADS:$(O)/%.so=%.c),$(call src,tests/lib)))
# Libraries for LD_PRELOAD: without sanitizers, which the program brings.
$(PRELOADS): $(O)/%.so: %.c
	@mkdir -p $(@D); echo "LD $@"
	$(Q)$(CC) $(CSTD) $(WARN) -O2 -fPIC -shared -o $@ $<
$(ARCHIVES) $(TESTLIB):
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcsD $@ $^

link_LDLIBS = $(all_LDLIBS)
link = @mkdir -p $(@D); echo "LD $@"; $(CC) $(all_LDFLAGS) -o $@ $(1) $(link_LDLIBS)
# main.o pulls everything; a role binary links only its own archive, so that a call into another
# role does not link.
$(O)/bin/embertree: $(O)/deploy/allinone/roles.c.o $(O)/common/role/process/main.c.o $(ARCHIVES)
	$(call link,$^)
$(ROLES:%=$(O)/bin/embertree-%): $(O)/bin/embertree-%: $(O)/%/roles.c.o $(O)/common/role/process/main.c.o $(O)/lib%.a $(BASE_A)
	$(call link,$^)
$(CTL_BIN): link_LDLIBS = $(ctl_LDLIBS)
$(CTL_BIN): $(O)/deploy/ctl/main.c.o $(ARCHIVES)
	$(call link,$^)
$(DEMO_BIN): $(patsubst %,$(O)/%.o,$(call src,deploy/demo)) $(BASE_A)
	$(call link,$^)
$(BENCH) $(TOOLS): %: %.c.o $(TESTLIB) $(ARCHIVES)
	$(call link,$^) -lcmocka
$(UNIT): %: %.c.o $(TESTLIB) $(ARCHIVES)
	$(call link,$^) -lcmocka $(TEST_LDFLAGS)
$(FUZZ): all_LDFLAGS += -fsanitize=fuzzer
$(FUZZ): %: %.c.o $(TESTLIB) $(ARCHIVES)
	$(call link,$^)

# C++ only where a library has no C interface for what must be (common/store/rocks_*.cc).
CXX_OF    = $(if $(findstring clang,$(CC)),$(CC:clang%=clang++%),$(CC:gcc%=g++%))
CXX_WARN  = -Wall -Wextra -Wpedantic -Wshadow $(if $(WERROR),-Werror)
$(O)/%.cc.o: %.cc $(O)/flags
	@mkdir -p $(@D); echo "CXX $<"
	$(Q)$(CXX_OF) -std=c++17 -fno-rtti -I. $(CXX_WARN) $(ALWAYS) $($(BUILD)_CFLAGS) \
	  $(ROCKSDB_CFLAGS) -c $< -o $@
$(O)/%.c.o: %.c $(O)/flags | $(GEN_H) $(O)/gen/version.h
	@mkdir -p $(@D); echo "CC $<"
	$(Q)$(CC) $(all_CFLAGS) $(call own_CFLAGS,$<) -c $< -o $@
$(O)/%.S.o: %.S $(O)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) -I$(B)/ui -c $< -o $@
# The bundle keeps its time when its bytes stay the same: then nothing is linked again.
$(B)/ui/assets.bin $(B)/ui/assets.idx: $(B)/ui/done ;
$(O)/querier/ui/assets.S.o: $(B)/ui/assets.bin $(B)/ui/assets.idx
$(O)/querier/render/viewer.S.o: $(shell find common/render querier -name 'viewer_*' -not -path '*/node_modules/*')

# Changed flags rebuild everything; the same flags rebuild nothing.
$(O)/flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(all_CFLAGS)' | cmp -s - $@ || echo '$(CC) $(all_CFLAGS)' > $@

-include $(shell find $(O) -name '*.d' 2>/dev/null)
