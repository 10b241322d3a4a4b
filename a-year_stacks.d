year_stacks.o: tests/lib/gen/year_stacks.c tests/lib/gen/year_stacks.h \
 common/base/prng.h common/base/base.h common/model/stacks.h \
 common/base/buf.h common/base/str.h common/base/err.h common/base/map.h \
 common/base/vec.h common/base/mem.h tests/lib/roles/dist_push.h \
 distributor/formats/formats.h distributor/formats/push.h \
 common/base/arena.h common/model/exid.h common/model/label.h \
 common/model/ptype.h distributor/base/ingest.h \
 distributor/formats/appname.h distributor/formats/limits.h \
 common/base/compress/compress.h distributor/formats/pprof/known_counts.h \
 distributor/formats/sample_config.h tests/lib/testdata.h
tests/lib/gen/year_stacks.h:
common/base/prng.h:
common/base/base.h:
common/model/stacks.h:
common/base/buf.h:
common/base/str.h:
common/base/err.h:
common/base/map.h:
common/base/vec.h:
common/base/mem.h:
tests/lib/roles/dist_push.h:
distributor/formats/formats.h:
distributor/formats/push.h:
common/base/arena.h:
common/model/exid.h:
common/model/label.h:
common/model/ptype.h:
distributor/base/ingest.h:
distributor/formats/appname.h:
distributor/formats/limits.h:
common/base/compress/compress.h:
distributor/formats/pprof/known_counts.h:
distributor/formats/sample_config.h:
tests/lib/testdata.h:
