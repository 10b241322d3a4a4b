sim_place.o: tests/lib/sim/sim_place.c common/base/mem.h \
 common/base/base.h common/cluster/map/map_next.h \
 common/cluster/map/map.h common/cluster/map/record.h common/base/buf.h \
 common/base/str.h common/base/err.h common/rpc/rpc_frame.h \
 common/cluster/view/map_change.h common/cluster/coord/coord.h \
 tests/lib/sim/sim_impl.h common/base/vec.h \
 common/cluster/coord/coord_sim.h common/base/prng.h common/sys/loop.h \
 common/sys/clock.h common/cluster/view/view.h common/base/json.h \
 common/sys/fs.h tests/lib/net/rpc_bed.h common/rpc/rpc.h \
 common/obs/metrics.h common/rpc/rpc_keys.h common/rpc/rpc_crypto.h \
 common/sys/env.h common/sys/pool.h common/rpc/rpc_mem.h \
 tests/lib/sim/sim.h tests/lib/sim/sim_disk.h common/repl/copy_files.h \
 common/repl/copy_msg.h common/store/kv/kv.h common/base/size.h \
 common/repl/log/rlog_fs.h common/role/core/role.h common/conf/conf.h \
 common/net/http.h common/base/arena.h common/net/http_head.h \
 common/sys/budget.h common/store/kv/kv_impl.h common/base/rd.h \
 tests/lib/repl/rlog_fake.h tests/lib/sim/sim_files.h \
 tests/lib/sim/sim_http.h common/base/list.h tests/lib/sim/sim_object.h
common/base/mem.h:
common/base/base.h:
common/cluster/map/map_next.h:
common/cluster/map/map.h:
common/cluster/map/record.h:
common/base/buf.h:
common/base/str.h:
common/base/err.h:
common/rpc/rpc_frame.h:
common/cluster/view/map_change.h:
common/cluster/coord/coord.h:
tests/lib/sim/sim_impl.h:
common/base/vec.h:
common/cluster/coord/coord_sim.h:
common/base/prng.h:
common/sys/loop.h:
common/sys/clock.h:
common/cluster/view/view.h:
common/base/json.h:
common/sys/fs.h:
tests/lib/net/rpc_bed.h:
common/rpc/rpc.h:
common/obs/metrics.h:
common/rpc/rpc_keys.h:
common/rpc/rpc_crypto.h:
common/sys/env.h:
common/sys/pool.h:
common/rpc/rpc_mem.h:
tests/lib/sim/sim.h:
tests/lib/sim/sim_disk.h:
common/repl/copy_files.h:
common/repl/copy_msg.h:
common/store/kv/kv.h:
common/base/size.h:
common/repl/log/rlog_fs.h:
common/role/core/role.h:
common/conf/conf.h:
common/net/http.h:
common/base/arena.h:
common/net/http_head.h:
common/sys/budget.h:
common/store/kv/kv_impl.h:
common/base/rd.h:
tests/lib/repl/rlog_fake.h:
tests/lib/sim/sim_files.h:
tests/lib/sim/sim_http.h:
common/base/list.h:
tests/lib/sim/sim_object.h:
