arena.o: common/base/arena.h common/base/base.h common/base/base.h \
 common/base/str.h
common/base/base.h:
common/base/base.h:
common/base/str.h:
