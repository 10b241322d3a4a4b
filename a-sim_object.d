sim_object.o: tests/lib/sim/sim_object.c tests/lib/sim/sim_object.h \
 common/role/core/role.h common/base/json.h common/base/buf.h \
 common/base/base.h common/base/str.h common/conf/conf.h \
 common/base/err.h common/net/http.h common/base/arena.h \
 common/net/http_head.h common/obs/metrics.h common/sys/budget.h \
 common/sys/loop.h common/sys/clock.h common/sys/pool.h common/rpc/rpc.h \
 common/rpc/rpc_frame.h common/rpc/rpc_keys.h common/rpc/rpc_crypto.h \
 common/sys/env.h common/base/prng.h common/sys/fs.h common/store/kv/kv.h \
 common/base/size.h tests/lib/sim/sim.h common/base/list.h \
 common/base/mem.h common/base/vec.h common/object/object_impl.h \
 common/object/object.h common/sys/fiber.h
tests/lib/sim/sim_object.h:
common/role/core/role.h:
common/base/json.h:
common/base/buf.h:
common/base/base.h:
common/base/str.h:
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
tests/lib/sim/sim.h:
common/base/list.h:
common/base/mem.h:
common/base/vec.h:
common/object/object_impl.h:
common/object/object.h:
common/sys/fiber.h:
