//! Seeded schedules of every profile keep every promise, each in true time; a seed replays one.

use crate::world::{Outcome, Plan, Profile, Tally, Violation, World};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// How many schedules of each profile every day; the environment asks for more, or for one seed alone.
const SCHEDULES: u64 = 6_000;

/// How many of each profile the proof runs: a million together.
const PROOF: u64 = 340_000;

/// How many schedules a thread takes at a time.
const SHARE: u64 = 64;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn run(seed: u64, profile: Profile) -> Outcome {
    World::run(Plan::new(seed, profile, None))
}

/// Runs the schedules `from..to` on all CPUs: the sum of what they did, and the first violation by seed.
fn simulate(from: u64, to: u64, profile: Profile) -> (Tally, Option<(u64, Violation)>) {
    let (next, stop) = (AtomicU64::new(from), AtomicU64::new(to));
    let result = Mutex::new((Tally::default(), None::<(u64, Violation)>));
    let work = || {
        let mut tally = Tally::default();
        loop {
            let share = next.fetch_add(SHARE, Ordering::Relaxed);
            for seed in share..share + SHARE {
                // Whatever comes after a violation is left out, whatever comes before it is not.
                if seed >= stop.load(Ordering::Relaxed) {
                    result.lock().expect("no panic").0.add(&tally);
                    return;
                }
                let outcome = run(seed, profile);
                tally.add(&outcome.tally);
                if let Some(violation) = outcome.violation {
                    stop.fetch_min(seed, Ordering::Relaxed);
                    let first = &mut result.lock().expect("no panic").1;
                    if first.as_ref().is_none_or(|(found, _)| seed < *found) {
                        *first = Some((seed, violation));
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    result.into_inner().expect("no panic")
}

fn keeps_every_promise(test: &str, profile: Profile) -> Tally {
    let seed = setting("LEASEKEEPER_SIM_SEED");
    let usual = if std::env::var_os("LEASEKEEPER_PROOF").is_some() { PROOF } else { SCHEDULES };
    let schedules = setting("LEASEKEEPER_SIM_SCHEDULES").unwrap_or(usual);
    let from = seed.or(setting("LEASEKEEPER_SIM_FROM")).unwrap_or(0);
    let to = if seed.is_some() { from + 1 } else { from + schedules };
    let (tally, violation) = simulate(from, to, profile);
    if let Some((seed, violation)) = violation {
        panic!(
            "seed {seed}: {violation}\nreplay it with: LEASEKEEPER_SIM_SEED={seed} LEASEKEEPER_SIM_TRACE=1 cargo test -p \
             leasekeeper-core --test simulation promises::{test} -- --exact"
        );
    }
    if seed.is_none() {
        assert!(
            tally.granted > schedules && tally.renewed > schedules && tally.peers_held > schedules / 10,
            "the schedules do not get to the point: {tally:?}"
        );
        println!("figure: simulation | schedules, {profile:?} | {schedules}");
        println!("figure: simulation | inputs handled, {profile:?} | {}", tally.handled);
        println!("figure: simulation | requests, {profile:?} | {}", tally.requests);
        println!("figure: simulation | grants, {profile:?} | {}", tally.granted);
        println!("figure: simulation | takeovers, {profile:?} | {}", tally.takeovers);
        println!("figure: simulation | losses, {profile:?} | {}", tally.lost);
        println!("figure: simulation | grants to pydynox-like peers, {profile:?} | {}", tally.peers_held);
        println!("figure: simulation | violations, {profile:?} | 0");
    }
    tally
}

#[test]
fn uniform_schedules_keep_every_promise() {
    keeps_every_promise("uniform_schedules_keep_every_promise", Profile::Uniform);
}

#[test]
fn edge_biased_schedules_keep_every_promise() {
    keeps_every_promise("edge_biased_schedules_keep_every_promise", Profile::Edge);
}

#[test]
fn transient_faults_cost_no_healthy_holder_its_lease_and_leave_no_row() {
    keeps_every_promise("transient_faults_cost_no_healthy_holder_its_lease_and_leave_no_row", Profile::Mild);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..50 {
        for profile in [Profile::Uniform, Profile::Edge, Profile::Mild] {
            let (one, other) = (run(seed, profile), run(seed, profile));
            assert_eq!(one.trace, other.trace, "{profile:?} {seed}");
        }
    }
    assert_ne!(run(1, Profile::Uniform).trace, run(2, Profile::Uniform).trace);
}
