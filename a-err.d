err.o: common/base/err.h common/base/base.h common/base/base.h
common/base/base.h:
common/base/base.h:
