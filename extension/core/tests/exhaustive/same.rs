//! That states which count as the same lead to states which count as the same: the searches leave nothing out.

use crate::model::bounds::Bounds;
use crate::model::{Action, Locks, Rule, State};
use crate::search::is_full;
use stateright::Model;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Where a state leads, by what counts: each successor's identity and what is broken in it, with a step that leads there.
type Ways = BTreeMap<(u64, Vec<Rule>), Action>;

fn ways(model: &Locks, state: &State, next: &mut Vec<State>) -> Ways {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    let mut ways = Ways::new();
    for action in actions {
        let Some(state) = model.next_state(state, action) else { continue };
        let broken = Rule::ALL.into_iter().filter(|rule| !state.keeps(*rule)).collect();
        ways.insert((state.identity(&model.bounds), broken), action);
        next.push(state);
    }
    ways
}

/// The steps to where only one of two states leads.
fn only(one: &Ways, other: &Ways) -> Vec<String> {
    one.iter().filter(|(way, _)| !other.contains_key(way)).map(|(_, action)| action.to_string()).collect()
}

/// Looks at the first `most` states, all that differ in anything, and holds those that count as one against each other.
fn check(bounds: Bounds, most: usize) {
    let model = Locks::new(bounds, &Rule::ALL);
    let mut found: HashSet<u64> = HashSet::new();
    let mut same: HashMap<u64, (State, Ways)> = HashMap::new();
    let mut queue: VecDeque<_> = model.init_states().into();
    let mut looked_at = 0;
    while let Some(state) = queue.pop_front().filter(|_| looked_at < most) {
        looked_at += 1;
        let mut next = Vec::new();
        let leads_to = ways(&model, &state, &mut next);
        queue.extend(next.into_iter().filter(|state| found.insert(state.raw())));
        let Some((known, known_to)) = same.get(&state.identity(&model.bounds)) else {
            same.insert(state.identity(&model.bounds), (state, leads_to));
            continue;
        };
        let (one, other) = (only(known_to, &leads_to), only(&leads_to, known_to));
        let agree = one.is_empty() && other.is_empty();
        assert!(agree, "{known:#?}\nby {one:?} leads where\n{state:#?}\ndoes not by {other:?}");
    }
    println!("{looked_at} states count as {}", same.len());
    assert!(looked_at > 2 * same.len(), "{looked_at} states that count as {}: nothing is tested", same.len());
}

#[test]
fn states_that_count_as_the_same_behave_the_same() {
    let most = if is_full() { 30_000 } else { 8_000 };
    let plain = Bounds::PLAIN;
    check(Bounds { short_ticks: 1, unknown: 1, sleeps: 1, ..plain.clone() }, most);
    check(Bounds { ticks: 5, unknown: 2, refusals: 1, ..plain.clone() }, most);
    check(Bounds { asks: [2, 2], at_once: 2, unknown: 1, crashes: 1, ..plain.clone() }, most);
    check(
        Bounds { asks: [2, 1], wait: Some(1), resends: 1, give_ups: 1, sleeps: 1, freezes: true, ..plain.clone() },
        most,
    );
    check(Bounds { unit: 2_500, unknown: 2, ..plain }, most);
}
