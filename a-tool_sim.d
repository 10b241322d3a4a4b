tool_sim.o: tests/lib/tools/tool_sim.c common/obs/log.h \
 common/base/base.h common/base/err.h common/base/str.h \
 common/sys/clock.h tests/lib/sim/sim.h tests/lib/sim/sim_files.h \
 common/base/prng.h common/store/kv/kv.h common/base/buf.h \
 common/base/size.h
common/obs/log.h:
common/base/base.h:
common/base/err.h:
common/base/str.h:
common/sys/clock.h:
tests/lib/sim/sim.h:
tests/lib/sim/sim_files.h:
common/base/prng.h:
common/store/kv/kv.h:
common/base/buf.h:
common/base/size.h:
