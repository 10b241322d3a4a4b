sim_files.o: tests/lib/sim/sim_files.c tests/lib/sim/sim_files.h \
 common/base/prng.h common/base/base.h common/store/kv/kv.h \
 common/base/buf.h common/base/str.h common/base/err.h common/base/size.h \
 common/base/hash.h common/base/mem.h common/base/rd.h common/base/vec.h \
 common/base/wr.h common/repl/copy_files.h common/repl/copy_msg.h \
 common/cluster/map/record.h common/store/kv/kv_mem.h common/sys/fs.h
tests/lib/sim/sim_files.h:
common/base/prng.h:
common/base/base.h:
common/store/kv/kv.h:
common/base/buf.h:
common/base/str.h:
common/base/err.h:
common/base/size.h:
common/base/hash.h:
common/base/mem.h:
common/base/rd.h:
common/base/vec.h:
common/base/wr.h:
common/repl/copy_files.h:
common/repl/copy_msg.h:
common/cluster/map/record.h:
common/store/kv/kv_mem.h:
common/sys/fs.h:
