conf_hint.o: common/conf/conf_hint.c common/base/mem.h common/base/base.h \
 common/conf/conf_impl.h common/base/vec.h common/conf/conf.h \
 common/base/buf.h common/base/str.h common/base/err.h
common/base/mem.h:
common/base/base.h:
common/conf/conf_impl.h:
common/base/vec.h:
common/conf/conf.h:
common/base/buf.h:
common/base/str.h:
common/base/err.h:
