/** A workload with a known hot method for the Java agent: three quarters of the CPU time belong to
 *  burnHot, one quarter to burnCold; garbage is made, a lock is fought over. */
public final class Work {
    static volatile long sink;
    static volatile byte[] garbage;
    static final Object lock = new Object();

    static void burnHot(int rounds) {
        long x = sink;
        for (int i = 0; i < rounds; i++)
            x = x * 6364136223846793005L + (x >>> 7) + i;
        sink = x;
    }

    static void burnCold(int rounds) {
        long x = sink;
        for (int i = 0; i < rounds; i++)
            x = x * 2862933555777941757L + (x >>> 7) + i;
        sink = x;
    }

    static void allocate() {
        for (int i = 0; i < 8; i++)
            garbage = new byte[128 << 10];
    }

    static void fight(long until) {
        while (System.nanoTime() < until)
            synchronized (lock) {
                try {
                    Thread.sleep(20);
                } catch (InterruptedException e) {
                    return;
                }
            }
    }

    public static void main(String[] args) throws Exception {
        int seconds = Integer.parseInt(System.getenv("SECONDS_TO_RUN"));
        long until = System.nanoTime() + seconds * 1_000_000_000L;
        for (int i = 0; i < 2; i++) {
            Thread t = new Thread(() -> fight(until), "fighter-" + i);
            t.setDaemon(true);
            t.start();
        }
        while (System.nanoTime() < until) {
            burnHot(3_000_000);
            burnCold(1_000_000);
            allocate();
        }
        Thread.sleep(Long.parseLong(System.getenv().getOrDefault("LINGER_MS", "7000")));
    }
}
