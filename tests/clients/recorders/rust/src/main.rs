//! A workload with a known hot function under pprof-rs, which writes its profile to the file that it
//! is given: three quarters of the CPU time belong to burn_hot, one quarter to burn_cold.
use pprof::protos::Message;
use std::env::{args, var};
use std::hint::black_box;
use std::time::{Duration, Instant};

// Operators only: what is inlined has frames of its own. Release builds let them wrap.
#[inline(never)]
fn burn_hot(rounds: u64) -> u64 {
    let (mut x, mut i): (u64, u64) = (black_box(1), 0);
    while i < rounds {
        x = x * 6364136223846793005 + i;
        i += 1;
    }
    x
}

#[inline(never)]
fn burn_cold(rounds: u64) -> u64 {
    let (mut x, mut i): (u64, u64) = (black_box(2), 0);
    while i < rounds {
        x = x * 2862933555777941757 + i;
        i += 1;
    }
    x
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = var("SECONDS_TO_RUN")?.parse()?;
    let path = args().nth(1).ok_or("no file is named")?;
    let guard = pprof::ProfilerGuardBuilder::default().frequency(100).build()?;
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        black_box(burn_hot(black_box(3_000_000)));
        black_box(burn_cold(black_box(1_000_000)));
    }
    std::fs::write(path, guard.report().build()?.pprof()?.encode_to_vec())?;
    Ok(())
}
