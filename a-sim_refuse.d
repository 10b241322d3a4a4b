sim_refuse.o: tests/lib/sim/sim_refuse.c common/base/mem.h \
 common/base/base.h common/store/kv/kv_impl.h common/base/rd.h \
 common/base/str.h common/store/kv/kv.h common/base/buf.h \
 common/base/err.h common/base/size.h ingester/base/state.h \
 common/base/list.h common/role/core/role.h common/base/json.h \
 common/conf/conf.h common/net/http.h common/base/arena.h \
 common/net/http_head.h common/obs/metrics.h common/sys/budget.h \
 common/sys/loop.h common/sys/clock.h common/sys/pool.h common/rpc/rpc.h \
 common/rpc/rpc_frame.h common/rpc/rpc_keys.h common/rpc/rpc_crypto.h \
 common/sys/env.h common/base/prng.h common/sys/fs.h ingester/base/disk.h \
 ingester/base/metrics.h ingester/base/disk_watch.h \
 ingester/base/options.h ingester/shard/shards.h ingester/shard/shard.h \
 common/store/mask/tomb.h common/base/vec.h common/store/store.h \
 common/model/exid.h common/model/label.h common/model/leaves.h \
 common/model/slot.h common/model/selector.h common/model/stacks.h \
 common/base/map.h common/store/dict/dict_cap.h common/sys/fair.h \
 tests/lib/sim/sim_impl.h common/cluster/coord/coord_sim.h \
 common/cluster/coord/coord.h common/cluster/view/view.h \
 common/cluster/map/map.h common/cluster/map/record.h \
 tests/lib/net/rpc_bed.h common/rpc/rpc_mem.h tests/lib/sim/sim.h \
 tests/lib/sim/sim_disk.h common/repl/copy_files.h common/repl/copy_msg.h \
 common/repl/log/rlog_fs.h tests/lib/repl/rlog_fake.h \
 tests/lib/sim/sim_files.h tests/lib/sim/sim_http.h \
 tests/lib/sim/sim_object.h
common/base/mem.h:
common/base/base.h:
common/store/kv/kv_impl.h:
common/base/rd.h:
common/base/str.h:
common/store/kv/kv.h:
common/base/buf.h:
common/base/err.h:
common/base/size.h:
ingester/base/state.h:
common/base/list.h:
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
ingester/base/disk.h:
ingester/base/metrics.h:
ingester/base/disk_watch.h:
ingester/base/options.h:
ingester/shard/shards.h:
ingester/shard/shard.h:
common/store/mask/tomb.h:
common/base/vec.h:
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
tests/lib/sim/sim_impl.h:
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
tests/lib/repl/rlog_fake.h:
tests/lib/sim/sim_files.h:
tests/lib/sim/sim_http.h:
tests/lib/sim/sim_object.h:
