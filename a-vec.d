vec.o: common/base/vec.h common/base/base.h common/base/mem.h \
 common/base/base.h
common/base/base.h:
common/base/mem.h:
common/base/base.h:
