conf_tree.o: common/conf/conf_tree.h common/base/base.h \
 common/base/arena.h common/base/base.h common/base/str.h \
 common/base/err.h
common/base/base.h:
common/base/arena.h:
common/base/base.h:
common/base/str.h:
common/base/err.h:
