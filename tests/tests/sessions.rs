//! Random sessions at the socket, as the fuzzer runs them, without its eyes: some every day, on the compiler of every day.

#[path = "../fuzz/src/session.rs"]
#[allow(unreachable_pub, reason = "the fuzzer's package exports it")]
mod session;

use fastrand::Rng;

/// Enough to meet every step many times; each takes a few milliseconds.
const SESSIONS: u64 = 200;

#[tokio::test]
async fn whatever_clients_send_each_request_is_answered_and_no_lock_is_left_behind() {
    let first = std::env::var("LEASEKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or_else(
        || {
            let start = fastrand::u64(..1 << 32);
            start..start + SESSIONS
        },
        |seed| seed..seed + 1,
    );
    for seed in seeds {
        let mut rng = Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..rng.usize(8..1_024)).map(|_| rng.u8(..)).collect();
        // Shown if it does not hold.
        println!("replay: LEASEKEEPER_SEED={seed} cargo test -p leasekeeper-tests --test sessions");
        session::run(&bytes).await;
    }
}
