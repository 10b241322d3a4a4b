sim_node.o: tests/lib/sim/sim_node.c common/base/hash.h common/base/str.h \
 common/base/base.h common/base/mem.h common/role/core/options.h \
 common/role/core/role.h common/base/json.h common/base/buf.h \
 common/conf/conf.h common/base/err.h common/net/http.h \
 common/base/arena.h common/net/http_head.h common/obs/metrics.h \
 common/sys/budget.h common/sys/loop.h common/sys/clock.h \
 common/sys/pool.h common/rpc/rpc.h common/rpc/rpc_frame.h \
 common/rpc/rpc_keys.h common/rpc/rpc_crypto.h common/sys/env.h \
 common/base/prng.h common/sys/fs.h common/store/kv/kv.h \
 common/base/size.h compactor/compactor.h distributor/distributor.h \
 ingester/ingester.h querier/querier.h tests/lib/sim/sim_impl.h \
 common/base/vec.h common/cluster/coord/coord_sim.h \
 common/cluster/coord/coord.h common/cluster/view/view.h \
 common/cluster/map/map.h common/cluster/map/record.h \
 tests/lib/net/rpc_bed.h common/rpc/rpc_mem.h tests/lib/sim/sim.h \
 tests/lib/sim/sim_disk.h common/repl/copy_files.h common/repl/copy_msg.h \
 common/repl/log/rlog_fs.h common/store/kv/kv_impl.h common/base/rd.h \
 tests/lib/repl/rlog_fake.h tests/lib/sim/sim_files.h \
 tests/lib/sim/sim_http.h common/base/list.h tests/lib/sim/sim_object.h
common/base/hash.h:
common/base/str.h:
common/base/base.h:
common/base/mem.h:
common/role/core/options.h:
common/role/core/role.h:
common/base/json.h:
common/base/buf.h:
common/conf/conf.h:
common/base/err.h:
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
common/store/kv/kv.h:
common/base/size.h:
compactor/compactor.h:
distributor/distributor.h:
ingester/ingester.h:
querier/querier.h:
tests/lib/sim/sim_impl.h:
common/base/vec.h:
common/cluster/coord/coord_sim.h:
common/cluster/coord/coord.h:
common/cluster/view/view.h:
common/cluster/map/map.h:
common/cluster/map/record.h:
tests/lib/net/rpc_bed.h:
common/rpc/rpc_mem.h:
tests/lib/sim/sim.h:
tests/lib/sim/sim_disk.h:
common/repl/copy_files.h:
common/repl/copy_msg.h:
common/repl/log/rlog_fs.h:
common/store/kv/kv_impl.h:
common/base/rd.h:
tests/lib/repl/rlog_fake.h:
tests/lib/sim/sim_files.h:
tests/lib/sim/sim_http.h:
common/base/list.h:
tests/lib/sim/sim_object.h:
