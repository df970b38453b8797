//! Seeded schedules over several cores, one table and a bad network: every promise, checked in true time.

use crate::world::{Mutation, Outcome, Plan, Profile, Tally, World};

/// How many schedules of each profile; the environment asks for more, or for one seed alone.
const SCHEDULES: u64 = 6_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn run(seed: u64, profile: Profile) -> Outcome {
    World::run(Plan::new(seed, profile, None), Mutation::None)
}

fn simulate(test: &str, profile: Profile) -> Tally {
    let mut tally = Tally::default();
    let seeds = match setting("LEASEKEEPER_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("LEASEKEEPER_SIM_SCHEDULES").unwrap_or(SCHEDULES),
    };
    for seed in seeds.clone() {
        let outcome = run(seed, profile);
        if let Some(violation) = outcome.violation {
            panic!(
                "seed {seed}: {violation}\nreplay it with: LEASEKEEPER_SIM_SEED={seed} LEASEKEEPER_SIM_TRACE=1 cargo test -p \
                 leasekeeper-core --test simulation promises::{test} -- --exact"
            );
        }
        tally.add(&outcome.tally);
    }
    println!("{profile:?}, {} schedules: {tally:?}", seeds.end - seeds.start);
    tally
}

fn reaches(tally: &Tally, schedules: u64) {
    if setting("LEASEKEEPER_SIM_SEED").is_none() {
        assert!(
            tally.granted > schedules && tally.renewed > schedules,
            "the schedules do not get to the point: {tally:?}"
        );
    }
}

#[test]
fn uniform_schedules_keep_every_promise() {
    let tally = simulate("uniform_schedules_keep_every_promise", Profile::Uniform);
    reaches(&tally, SCHEDULES);
    assert!(tally.lost > 0);
}

#[test]
fn edge_biased_schedules_keep_every_promise() {
    let tally = simulate("edge_biased_schedules_keep_every_promise", Profile::Edge);
    reaches(&tally, SCHEDULES);
    assert!(tally.takeovers > 0);
}

#[test]
fn transient_faults_cost_no_healthy_holder_its_lease_and_leave_no_row() {
    let tally = simulate("transient_faults_cost_no_healthy_holder_its_lease_and_leave_no_row", Profile::Mild);
    reaches(&tally, SCHEDULES);
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
