map.o: common/base/map.c common/base/map.h common/base/str.h \
 common/base/base.h common/base/hash.h common/base/mem.h \
 common/base/pause.h common/base/secret.h
common/base/map.h:
common/base/str.h:
common/base/base.h:
common/base/hash.h:
common/base/mem.h:
common/base/pause.h:
common/base/secret.h:
