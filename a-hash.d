hash.o: common/base/hash.h common/base/base.h common/base/str.h \
 common/base/base.h
common/base/base.h:
common/base/str.h:
common/base/base.h:
