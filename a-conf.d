conf.o: common/conf/conf.c common/conf/conf.h common/base/buf.h \
 common/base/base.h common/base/str.h common/base/err.h common/base/mem.h \
 common/conf/conf_impl.h common/base/vec.h common/sys/fs.h
common/conf/conf.h:
common/base/buf.h:
common/base/base.h:
common/base/str.h:
common/base/err.h:
common/base/mem.h:
common/conf/conf_impl.h:
common/base/vec.h:
common/sys/fs.h:
