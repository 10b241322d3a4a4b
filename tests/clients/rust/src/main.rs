//! A workload with a known hot function under the Rust SDK: three quarters of the CPU time belong
//! to burn_hot, one quarter to burn_cold.
use pyroscope::backend::{pprof_backend, BackendConfig, PprofConfig};
use pyroscope::pyroscope::PyroscopeAgentBuilder;
use std::collections::HashMap;
use std::env::var;
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
    let mut builder = PyroscopeAgentBuilder::new(
        var("SERVER")?,
        var("APP")?,
        100,
        "pyroscope-rs",
        env!("CARGO_PKG_VERSION"),
        pprof_backend(PprofConfig::default(), BackendConfig::default()),
    )
    .tags(vec![("region", "north")])
    .upload_interval(Duration::from_secs(5));
    if let Ok(user) = var("BASIC_USER") {
        builder = builder.basic_auth(user, var("BASIC_PASSWORD")?);
    }
    if let Ok(token) = var("BEARER") {
        let header = ("Authorization".to_string(), format!("Bearer {token}"));
        builder = builder.http_headers(HashMap::from([header]));
    }
    if let Ok(tenant) = var("TENANT") {
        builder = builder.tenant_id(tenant);
    }
    let agent = builder.build()?.start()?;
    let (add_tag, remove_tag) = agent.tag_wrapper();
    add_tag("job".to_string(), "burn".to_string())?;
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        black_box(burn_hot(black_box(3_000_000)));
        black_box(burn_cold(black_box(1_000_000)));
    }
    remove_tag("job".to_string(), "burn".to_string())?;
    agent.stop()?.shutdown();
    Ok(())
}
