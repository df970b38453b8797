//! That states which count as the same lead to states which count as the same: the searches leave nothing out.

use crate::model::bounds::Bounds;
use crate::model::{Action, Locks, Rule, State};
use crate::search::is_full;
use stateright::Model;
use std::collections::{HashMap, HashSet, VecDeque};

/// Where a state leads, by what counts: each successor's identity, and what is broken in it.
fn leads_to(model: &Locks, state: &State, next: &mut Vec<State>) -> Vec<(u64, Vec<Rule>)> {
    let mut actions: Vec<Action> = Vec::new();
    model.actions(state, &mut actions);
    next.extend(actions.into_iter().filter_map(|action| model.next_state(state, action)));
    let broken = |state: &State| Rule::ALL.into_iter().filter(|rule| !state.keeps(*rule)).collect();
    let mut ways: Vec<_> = next.iter().map(|state| (state.identity(&model.bounds), broken(state))).collect();
    ways.sort_unstable_by_key(|(identity, _)| *identity);
    ways.dedup();
    ways
}

/// Looks at the first `most` states, all that differ in anything, and holds those that count as one against each other.
fn check(bounds: Bounds, most: usize) {
    let model = Locks::new(bounds, &Rule::ALL);
    let mut found: HashSet<u64> = HashSet::new();
    let mut same: HashMap<u64, Vec<(u64, Vec<Rule>)>> = HashMap::new();
    let mut queue: VecDeque<_> = model.init_states().into();
    let mut looked_at = 0;
    while let Some(state) = queue.pop_front().filter(|_| looked_at < most) {
        looked_at += 1;
        let mut next = Vec::new();
        let ways = leads_to(&model, &state, &mut next);
        let known = same.entry(state.identity(&model.bounds)).or_insert_with(|| ways.clone());
        assert_eq!(*known, ways, "another state that counts as the same leads elsewhere than {state:#?}");
        queue.extend(next.into_iter().filter(|state| found.insert(state.raw())));
    }
    println!("{looked_at} states count as {}", same.len());
    assert!(looked_at > 2 * same.len(), "{looked_at} states that count as {}: nothing is tested", same.len());
}

#[test]
fn states_that_count_as_the_same_behave_the_same() {
    let most = if is_full() { 100_000 } else { 8_000 };
    let plain = Bounds::PLAIN;
    check(Bounds { unknown: 1, sleeps: 1, ..plain.clone() }, most);
    check(Bounds { ticks: 5, unknown: 2, refusals: 1, ..plain.clone() }, most);
    check(Bounds { asks: [2, 2], at_once: 2, unknown: 1, crashes: 1, ..plain.clone() }, most);
    check(
        Bounds { asks: [2, 1], wait: Some(1), resends: 1, give_ups: 1, sleeps: 1, freezes: true, ..plain.clone() },
        most,
    );
    check(Bounds { unit: 2_500, unknown: 2, ..plain }, most);
}
