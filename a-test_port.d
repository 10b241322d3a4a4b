test_port.o: tests/lib/test_port.c tests/lib/test_port.h \
 common/base/mem.h common/base/base.h
tests/lib/test_port.h:
common/base/mem.h:
common/base/base.h:
