tool_drop.o: tests/lib/tools/tool_drop.c common/store/codec/keys.h \
 common/base/buf.h common/base/base.h common/base/str.h common/base/wr.h \
 common/model/slot.h common/store/kv/kv.h common/base/err.h \
 common/base/size.h
common/store/codec/keys.h:
common/base/buf.h:
common/base/base.h:
common/base/str.h:
common/base/wr.h:
common/model/slot.h:
common/store/kv/kv.h:
common/base/err.h:
common/base/size.h:
