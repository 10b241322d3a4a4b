// SPDX-License-Identifier: Apache-2.0
import java.util.ArrayList;
import java.util.List;

/** Three times as much of hot as of cold, some memory, and a lock that two threads want. */
public class Work {
    static volatile long sink;
    static final Object lock = new Object();

    static long spin(long n) {
        long x = n;
        for (long i = 0; i < n; i++) x = x * 6364136223846793005L + 1442695040888963407L;
        return x;
    }

    static void hot() {
        sink += spin(3_000_000);
    }

    static void cold() {
        sink += spin(1_000_000);
    }

    static void allocate() {
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 64; i++) kept.add(new byte[16 * 1024]);
        sink += kept.size();
    }

    static void contend() {
        synchronized (lock) {
            sink += spin(10_000_000);
        }
    }

    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + 6_000_000_000L;
        Thread other = new Thread(() -> {
            while (System.nanoTime() < end) contend();
        }, "other");
        other.start();
        while (System.nanoTime() < end) {
            hot();
            cold();
            allocate();
            contend();
        }
        other.join();
    }
}
