sim_between.o: tests/lib/sim/sim_between.c common/base/json.h \
 common/base/buf.h common/base/base.h common/base/str.h \
 common/cluster/coord/keyspace.h common/cluster/coord/coord.h \
 common/base/err.h common/cluster/map/map.h common/cluster/map/record.h \
 common/rpc/rpc_frame.h common/cluster/map/map_next.h \
 ingester/base/state.h common/base/list.h common/role/core/role.h \
 common/conf/conf.h common/net/http.h common/base/arena.h \
 common/net/http_head.h common/obs/metrics.h common/sys/budget.h \
 common/sys/loop.h common/sys/clock.h common/sys/pool.h common/rpc/rpc.h \
 common/rpc/rpc_keys.h common/rpc/rpc_crypto.h common/sys/env.h \
 common/base/prng.h common/sys/fs.h common/store/kv/kv.h \
 common/base/size.h ingester/base/disk.h ingester/base/metrics.h \
 ingester/base/disk_watch.h ingester/base/options.h \
 ingester/shard/shards.h ingester/shard/shard.h common/store/mask/tomb.h \
 common/base/vec.h common/base/mem.h common/store/store.h \
 common/model/exid.h common/model/label.h common/model/leaves.h \
 common/model/slot.h common/model/selector.h common/model/stacks.h \
 common/base/map.h common/store/dict/dict_cap.h common/sys/fair.h \
 ingester/replicas/replicas_impl.h common/base/speed.h \
 common/cluster/map/progress.h common/cluster/view/view.h \
 common/repl/repl_node.h common/repl/log/rlog.h common/repl/log/entry.h \
 common/base/rd.h common/repl/log/rlog_fs.h \
 common/repl/protocol/replica.h common/repl/protocol/msg.h \
 common/store/delete/reclaim.h ingester/replicas/replicas.h \
 tests/lib/sim/sim_impl.h common/cluster/coord/coord_sim.h \
 tests/lib/net/rpc_bed.h common/rpc/rpc_mem.h tests/lib/sim/sim.h \
 tests/lib/sim/sim_disk.h common/repl/copy_files.h common/repl/copy_msg.h \
 common/store/kv/kv_impl.h tests/lib/repl/rlog_fake.h \
 tests/lib/sim/sim_files.h tests/lib/sim/sim_http.h \
 tests/lib/sim/sim_object.h
common/base/json.h:
common/base/buf.h:
common/base/base.h:
common/base/str.h:
common/cluster/coord/keyspace.h:
common/cluster/coord/coord.h:
common/base/err.h:
common/cluster/map/map.h:
common/cluster/map/record.h:
common/rpc/rpc_frame.h:
common/cluster/map/map_next.h:
ingester/base/state.h:
common/base/list.h:
common/role/core/role.h:
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
common/rpc/rpc_keys.h:
common/rpc/rpc_crypto.h:
common/sys/env.h:
common/base/prng.h:
common/sys/fs.h:
common/store/kv/kv.h:
common/base/size.h:
ingester/base/disk.h:
ingester/base/metrics.h:
ingester/base/disk_watch.h:
ingester/base/options.h:
ingester/shard/shards.h:
ingester/shard/shard.h:
common/store/mask/tomb.h:
common/base/vec.h:
common/base/mem.h:
common/store/store.h:
common/model/exid.h:
common/model/label.h:
common/model/leaves.h:
common/model/slot.h:
common/model/selector.h:
common/model/stacks.h:
common/base/map.h:
common/store/dict/dict_cap.h:
common/sys/fair.h:
ingester/replicas/replicas_impl.h:
common/base/speed.h:
common/cluster/map/progress.h:
common/cluster/view/view.h:
common/repl/repl_node.h:
common/repl/log/rlog.h:
common/repl/log/entry.h:
common/base/rd.h:
common/repl/log/rlog_fs.h:
common/repl/protocol/replica.h:
common/repl/protocol/msg.h:
common/store/delete/reclaim.h:
ingester/replicas/replicas.h:
tests/lib/sim/sim_impl.h:
common/cluster/coord/coord_sim.h:
tests/lib/net/rpc_bed.h:
common/rpc/rpc_mem.h:
tests/lib/sim/sim.h:
tests/lib/sim/sim_disk.h:
common/repl/copy_files.h:
common/repl/copy_msg.h:
common/store/kv/kv_impl.h:
tests/lib/repl/rlog_fake.h:
tests/lib/sim/sim_files.h:
tests/lib/sim/sim_http.h:
tests/lib/sim/sim_object.h:
