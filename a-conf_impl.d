conf_impl.o: common/conf/conf_impl.h common/base/base.h common/base/vec.h \
 common/base/mem.h common/base/base.h common/conf/conf.h \
 common/base/buf.h common/base/str.h common/base/err.h
common/base/base.h:
common/base/vec.h:
common/base/mem.h:
common/base/base.h:
common/conf/conf.h:
common/base/buf.h:
common/base/str.h:
common/base/err.h:
