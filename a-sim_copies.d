sim_copies.o: tests/lib/sim/sim_copies.c common/base/hash.h \
 common/base/str.h common/base/base.h tests/lib/sim/sim_disk.h \
 common/base/vec.h common/base/mem.h common/repl/copy_files.h \
 common/repl/copy_msg.h common/base/buf.h common/base/err.h \
 common/cluster/map/record.h common/store/kv/kv.h common/base/size.h \
 common/repl/log/rlog_fs.h common/role/core/role.h common/base/json.h \
 common/conf/conf.h common/net/http.h common/base/arena.h \
 common/net/http_head.h common/obs/metrics.h common/sys/budget.h \
 common/sys/loop.h common/sys/clock.h common/sys/pool.h common/rpc/rpc.h \
 common/rpc/rpc_frame.h common/rpc/rpc_keys.h common/rpc/rpc_crypto.h \
 common/sys/env.h common/base/prng.h common/sys/fs.h \
 common/store/kv/kv_impl.h common/base/rd.h tests/lib/repl/rlog_fake.h \
 tests/lib/sim/sim.h tests/lib/sim/sim_files.h
common/base/hash.h:
common/base/str.h:
common/base/base.h:
tests/lib/sim/sim_disk.h:
common/base/vec.h:
common/base/mem.h:
common/repl/copy_files.h:
common/repl/copy_msg.h:
common/base/buf.h:
common/base/err.h:
common/cluster/map/record.h:
common/store/kv/kv.h:
common/base/size.h:
common/repl/log/rlog_fs.h:
common/role/core/role.h:
common/base/json.h:
common/conf/conf.h:
common/net/http.h:
common/base/arena.h:
common/net/http_head.h:
common/obs/metrics.h:
common/sys/budget.h:
common/sys/loop.h:
common/sys/clock.h:
common/sys/pool.h:
common/rpc/rpc.h:
common/rpc/rpc_frame.h:
common/rpc/rpc_keys.h:
common/rpc/rpc_crypto.h:
common/sys/env.h:
common/base/prng.h:
common/sys/fs.h:
common/store/kv/kv_impl.h:
common/base/rd.h:
tests/lib/repl/rlog_fake.h:
tests/lib/sim/sim.h:
tests/lib/sim/sim_files.h:
