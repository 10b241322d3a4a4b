compress.o: common/base/compress/compress.h common/base/base.h \
 common/base/buf.h common/base/base.h common/base/str.h common/base/err.h
common/base/base.h:
common/base/buf.h:
common/base/base.h:
common/base/str.h:
common/base/err.h:
